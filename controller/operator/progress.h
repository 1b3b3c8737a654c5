// What the ops port of node-rank 0 answers to /status while a group loads. Untrusted.
#pragma once
#include <map>
#include <optional>
#include <string>

#include "controller/core/json.h"
#include "planner/plan.h"

namespace pm::op {

struct RankProgress {
  bool ready = false;
  int64_t loaded = 0, total = 0;        ///< bytes
  std::optional<Memory> measured;       ///< once it is loaded
};

struct Progress {
  std::string state;                    ///< Starting, Loading, Ready, ...
  std::map<int, RankProgress> ranks;
  std::optional<double> load_seconds;   ///< of the slowest rank
  int64_t loaded() const;
  int64_t total() const;
  bool all_ready() const;
};

/// Nothing when it is no answer of this incarnation of a group of `ranks` ranks.
std::optional<Progress> progress_of(const k8s::Json& answer, int64_t incarnation, int ranks);

}  // namespace pm::op
