// The words of a decision: what was chosen and why, what was rejected, why nothing fits. Every sentence has its numbers.
#pragma once
#include <string>

#include "planner/choose.h"

namespace pm {

struct Explainer {
  const Facts& facts;
  const Hardware& hardware;
  const Wishes& wishes;
  const Demand& demand;
  int fewest = 0;                ///< devices that hold one copy, 0: not found
  std::string usable = {};       ///< where nothing fits: "36 devices can be used (Tensor x 4, Data x 9)", the most below those given

  /// "weights 5.0 GiB + KV of one sequence 1.2 GiB + ... = 7.1 GiB"; no KV for models that answer in one pass.
  std::string arithmetic(const Memory&) const;
  Rejected rejected(const Candidate&, const Candidate* chosen) const;
  /// FitsOneDevice, UserFixed, OnlyOneThatFits, MostRoom, GainsNothingFromCutting, LowestLatency, HighestThroughput, LeastMemory.
  std::string reason(const std::vector<Candidate>&, const Choice&, bool fixed) const;
  std::string message(const std::vector<Candidate>&, const Choice&, const std::string& reason) const;
  Refusal does_not_fit(const std::vector<Candidate>&) const;
};

/// At most 16 alternatives: those that fit, the best first; those that are not needed; those that do not fit; those that the model or the nodes do not allow.
std::vector<Rejected> alternatives(const Explainer&, const std::vector<Candidate>&, std::optional<size_t> chosen);

}  // namespace pm
