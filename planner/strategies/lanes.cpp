// Lanes: whole copies beside each other, or one lane alone, and the figures by which layouts are compared.
#include <algorithm>

#include "planner/strategies/layout.h"

namespace pm {

namespace {

bool generates(const Facts& facts) { return facts.task == "generate"; }

/// Generating, groups of sequences in flight: as many as stages, so that each always has one. Else pieces of a pass: four times the stages,
/// which keeps them busy for 4p / (5p - 1) of the time. Never more than a lane's sequences.
int planned_micro_batches(const Facts& facts, const Sizes& sizes, double lane_concurrency) {
  const double wanted = generates(facts) ? sizes.pipeline : 4.0 * sizes.pipeline;
  return sizes.pipeline == 1 ? 1 : static_cast<int>(std::max(1.0, std::min(wanted, lane_concurrency)));
}

/// Tokens per second of a lane with `sequences` of them. Generating: m groups of b tokens, each of which comes round once in
/// max(p, m) turns of the slowest stage. Else: m passes of one sequence each, which take m + p - 1 turns.
double lane_rate(const Facts& facts, const Layout& layout, const Demand& demand, int lane, double sequences) {
  const double m = layout.micro_batches, p = layout.sizes.pipeline;
  if (generates(facts)) {
    const double group = std::max(1.0, sequences / m);
    return std::min(sequences, m * group) / (std::max(m, p) * stage_times(layout, demand, lane, group).slowest);
  }
  const auto tokens = static_cast<double>(demand.sequence_length);
  return m * tokens / ((m + p - 1) * stage_times(layout, demand, lane, tokens).slowest);
}

}  // namespace

Layout lanes(const Facts& facts, const Sizes& sizes, const Demand& demand) {
  const auto all = static_cast<double>(demand.concurrency), count = static_cast<double>(sizes.data);
  Layout layout = tensor_pipeline(facts, sizes, demand, (demand.concurrency + sizes.data - 1) / sizes.data);
  layout.concurrency = std::min(demand.concurrency, layout.concurrency * sizes.data);
  const double busy = std::min(count, all);   // lanes that have a sequence at all
  layout.micro_batches = demand.micro_batches.value_or(planned_micro_batches(facts, sizes, all / busy));
  layout.estimate.bytes = layout.need();
  double rate = 0;
  for (int lane = 0; lane < sizes.data; ++lane) {
    const double one = generates(facts) ? 1.0 : static_cast<double>(demand.sequence_length);
    layout.estimate.token_seconds = std::max(layout.estimate.token_seconds, stage_times(layout, demand, lane, one).sum);
    const double here = lane_rate(facts, layout, demand, lane, all / busy);
    rate = lane == 0 ? here : std::min(rate, here);
  }
  layout.estimate.tokens_per_second = rate * busy;
  return layout;
}

}  // namespace pm
