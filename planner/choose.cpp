// SPDX-License-Identifier: Apache-2.0
#include "planner/choose.h"

#include <tuple>

namespace pm {

namespace {

/// Smaller is better, compared from left to right.
std::tuple<double, double, int64_t> score(Objective objective, const Estimate& e) {
  switch (objective) {
    case Objective::Latency:
      return {e.token_seconds, -e.tokens_per_second, e.bytes};
    case Objective::Throughput:
      return {-e.tokens_per_second, e.token_seconds, e.bytes};
    case Objective::Memory:
      return {static_cast<double>(e.bytes), e.token_seconds, e.bytes};
  }
  return {};
}

}  // namespace

bool better(Objective objective, const Estimate& a, const Estimate& b) {
  return score(objective, a) < score(objective, b);
}

std::optional<Choice> choose(const std::vector<Candidate>& candidates, Objective objective) {
  std::optional<size_t> smallest, best, fastest;
  const auto take = [&](std::optional<size_t>& place, size_t i, Objective by) {
    if (!place || better(by, candidates[i].layout->estimate, candidates[*place].layout->estimate)) place = i;
  };
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].layout && !candidates[i].impossible) take(smallest, i, Objective::Memory);
  }
  for (size_t i = 0; i < candidates.size(); ++i) {
    const Candidate& one = candidates[i];
    if (!one.layout || one.impossible || !one.fits) continue;
    take(fastest, i, objective);
    const bool small = one.layout->need() / 5 * 4 <= candidates[*smallest].layout->need();
    if (one.roomy || small || objective == Objective::Memory) take(best, i, objective);
  }
  if (!best) return std::nullopt;
  return Choice{*best, *fastest != *best};
}

}  // namespace pm
