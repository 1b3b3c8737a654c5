// The choice among layouts that were tried. Scores do not depend on the devices' memory, only which layouts may be chosen does: as memory grows,
// layouts are added and none is taken away, so that the choice never gets worse by its objective and never returns to an earlier one.
#pragma once
#include <optional>
#include <vector>

#include "planner/strategies/layout.h"

namespace pm {

/// A layout that was tried: its numbers, or why there are none.
struct Candidate {
  Strategy strategy = Strategy::Tensor;
  std::string name;              ///< "Tensor x 2, Pipeline x 2"
  Sizes sizes;
  std::optional<Layout> layout;
  std::optional<Rejected> impossible;   ///< TooFewHeads, TooFewLayers, SpansNodes, NotNeeded
  std::string note;              ///< what bounds it, where the name does not say
  bool fits = false;             ///< with the KV cache of one sequence
  bool roomy = false;            ///< holds at least a quarter of the sequences asked for
};

/// Of two estimates the better by the objective: seconds per token (then tokens per second), tokens per second (then seconds), or bytes (then seconds).
bool better(Objective, const Estimate&, const Estimate&);

/// What was chosen, as an index, and whether candidates that fit and are better by their numbers were passed over because they hold too few sequences.
struct Choice { size_t index = 0; bool for_room = false; };

/// Of those that fit, the ones that are roomy and the ones that need at most a quarter more bytes per device than the smallest, and so have about the most room:
/// the best of them by the objective. For Memory all that fit. Nothing when none fits.
std::optional<Choice> choose(const std::vector<Candidate>&, Objective);

}  // namespace pm
