// SPDX-License-Identifier: Apache-2.0
// Chooses among layouts that were tried. Scores do not depend on the devices' memory; only the set of eligible layouts
// does. As memory grows, layouts are added and none is removed, so the choice never gets worse by its objective and
// never returns to an earlier one.
#pragma once
#include <optional>
#include <vector>

#include "planner/strategies/layout.h"

namespace pm {

/// A layout that was tried: its estimates, or the reason why there are none.
struct Candidate {
  Strategy strategy = Strategy::Tensor;
  std::string name;  ///< "Tensor x 2, Pipeline x 2"
  Sizes sizes;
  std::optional<Layout> layout;
  std::optional<Rejected> impossible;  ///< TooFewHeads, TooFewLayers, SpansNodes, NotNeeded
  std::string note;                    ///< the bottleneck, where the name does not say it
  bool fits = false;                   ///< with the KV cache of one sequence
  bool roomy = false;                  ///< holds at least a quarter of the requested sequences
};

/// Returns true when the first estimate is better by the objective: seconds per token (then tokens per second), tokens
/// per second (then seconds), or bytes (then seconds).
bool better(Objective, const Estimate&, const Estimate&);

/// The index of the chosen candidate. `for_room` is true when better candidates fit but were rejected because they hold
/// too few sequences.
struct Choice {
  size_t index = 0;
  bool for_room = false;
};

/// Returns the best eligible candidate by the objective, or nothing when none fits. For Memory every candidate that
/// fits is eligible. Otherwise a candidate that fits is eligible when it is roomy, or when it needs at most a quarter
/// more bytes per device than the smallest and so has about the most room.
std::optional<Choice> choose(const std::vector<Candidate>&, Objective);

}  // namespace pm
