// SPDX-License-Identifier: Apache-2.0
// Declares the untrusted /status of node-rank 0 of a loading replica.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "contract/memory_bytes.h"
#include "controller/core/json.h"

namespace pm::op {

struct RankProgress {
  bool ready = false;
  int64_t loaded = 0, total = 0;   ///< bytes
  std::optional<Memory> measured;  ///< once it is loaded
};

struct Progress {
  std::string state;  ///< Starting, Loading, Ready, ...
  std::map<int, RankProgress> ranks;
  std::optional<double> load_seconds;  ///< of the slowest rank
  int64_t loaded() const;
  int64_t total() const;
  bool all_ready() const;
};

/// Parses /status. Returns nullopt unless it is of this generation and has `ranks` ranks.
std::optional<Progress> progress_of(const k8s::Json& answer, int64_t replica_generation, int ranks);

}  // namespace pm::op
