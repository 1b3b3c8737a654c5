// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/speculation/draft_cost.h"

#include <algorithm>
#include <bit>

namespace pm::engine {

namespace {

constexpr double kept = 0.97;            // weight of all steps before, when one more is observed
constexpr double plain_weight = 0.125;   // weight of the latest step without drafts
constexpr double least_weight = 3;       // of observed steps, below which the price is a guess
constexpr double least_variance = 0.25;  // of the number of drafts, below which the step's own cost is not known
constexpr double least_row = 0.02, most_row = 1, most_step = 8;

}  // namespace

/// Two classes for each power of two: 1, 2, 3, 4-5, 6-7, 8-11, ...
size_t DraftCost::index_of(int64_t sequences) {
  const auto n = static_cast<uint64_t>(std::max<int64_t>(1, sequences));
  const int octave = std::bit_width(n) - 1;
  const uint64_t upper_half = octave > 0 ? (n >> (octave - 1)) & 1 : 0;
  return std::min<size_t>(2 * static_cast<size_t>(octave) + upper_half, classes - 1);
}

DraftPrice DraftCost::price(int64_t sequences) const {
  const Class& c = classes_[index_of(sequences)];
  if (c.weight < least_weight || c.drafts <= 0) return {};
  const double mean_drafts = c.drafts / c.weight, mean_cost = c.costs / c.weight,
               variance = c.squares / c.weight - mean_drafts * mean_drafts;
  double row = mean_cost / mean_drafts, step = 0;
  if (variance >= least_variance) {
    const double slope = (c.products / c.weight - mean_drafts * mean_cost) / variance;
    step = std::clamp(mean_cost - std::max(slope, least_row) * mean_drafts, 0.0, most_step);
    row = (mean_cost - step) / mean_drafts;
  }
  return {std::clamp(row, least_row, most_row), step};
}

bool DraftCost::may_draft(int64_t sequences) const {
  return classes_[index_of(sequences)].since_plain < steps_per_plain_step;
}

void DraftCost::planned(int64_t sequences, int64_t drafts) {
  Class& c = classes_[index_of(sequences)];
  c.since_plain = drafts > 0 ? c.since_plain + 1 : 0;
}

void DraftCost::observe(int64_t sequences, int64_t drafts, double seconds) {
  if (sequences <= 0 || seconds <= 0) return;
  Class& c = classes_[index_of(sequences)];
  if (drafts == 0) {
    c.plain_seconds = c.plain_seconds > 0 ? c.plain_seconds + (seconds - c.plain_seconds) * plain_weight : seconds;
    return;
  }
  if (c.plain_seconds <= 0) return;
  const double rows = static_cast<double>(drafts),
               cost = std::clamp((seconds / c.plain_seconds - 1) * static_cast<double>(sequences), 0.0,
                                 2 * rows + most_step);
  for (double* sum : {&c.weight, &c.drafts, &c.squares, &c.costs, &c.products}) *sum *= kept;
  c.weight += 1;
  c.drafts += rows;
  c.squares += rows * rows;
  c.costs += cost;
  c.products += rows * cost;
}

}  // namespace pm::engine
