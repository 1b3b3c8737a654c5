// SPDX-License-Identifier: Apache-2.0
// Writes the messages of a decision: the choice and its reason, rejected alternatives, or why nothing fits. Every
// message contains its numbers.
#pragma once
#include <string>

#include "planner/choose.h"

namespace pm {

struct Explainer {
  const ModelMetadata& metadata;
  const Hardware& hardware;
  const PlanConstraints& constraints;
  const Demand& demand;
  int fewest = 0;  ///< fewest devices that hold one copy; 0 when none was found
  std::string usable =
      {};  ///< where nothing fits: "36 devices can be used (Tensor x 4, Data x 9)", the most below those given

  /// "weights 5.0 GiB + KV of one sequence 1.2 GiB + ... = 7.1 GiB"; without KV for models that answer in one forward
  /// pass.
  std::string arithmetic(const Memory&) const;
  Rejected rejected(const Candidate&, const Candidate* chosen) const;
  /// FitsOneDevice, UserFixed, OnlyOneThatFits, MostRoom, NoGainFromPartitioning, LowestLatency, HighestThroughput,
  /// LeastMemory.
  Reason reason(const std::vector<Candidate>&, const Choice&, bool fixed) const;
  std::string message(const std::vector<Candidate>&, const Choice&, Reason) const;
  Refusal does_not_fit(const std::vector<Candidate>&) const;
};

/// Returns at most 16 alternatives: those that fit, best first, then those that are not needed, those that do not fit,
/// and those that the model or the nodes do not allow.
std::vector<Rejected> alternatives(const Explainer&, const std::vector<Candidate>&, std::optional<size_t> chosen);

}  // namespace pm
