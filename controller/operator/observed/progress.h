// SPDX-License-Identifier: Apache-2.0
// Declares the untrusted /status of node-rank 0 of a loading replica.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "base/transfer.h"
#include "contract/memory_bytes.h"
#include "controller/core/json.h"

namespace pm::op {

struct RankProgress {
  bool ready = false;
  base::Transfer loaded;           ///< since the start of the load
  std::optional<Memory> measured;  ///< once it is loaded
};

struct Progress {
  std::string state;  ///< Starting, Loading, Ready, ...
  std::map<int, RankProgress> ranks;
  std::optional<double> load_seconds;  ///< of the slowest rank, so far
  /// Returns the sums over the ranks.
  base::Transfer loaded() const;
  bool all_ready() const;
};

/// Parses /status. Returns nullopt unless it is of this generation and has `ranks` ranks.
std::optional<Progress> progress_of(const k8s::Json& answer, int64_t replica_generation, int ranks);

}  // namespace pm::op
