// SPDX-License-Identifier: Apache-2.0
// Models data parallelism: independent copies of tensor x pipeline, or one copy alone, and the estimates by which
// layouts are compared.
#include <algorithm>

#include "planner/strategies/layout.h"

namespace pm {

namespace {

bool generates(const ModelMetadata& metadata) { return metadata.task == "generate"; }

/// Returns the number of micro-batches. Generation has as many groups of sequences in flight as stages, so that each
/// stage always has one. Other forward passes are split into four micro-batches per stage, which keeps stages busy for
/// 4p / (5p - 1) of the time. There are never more than the sequences of a data-parallel rank.
int planned_micro_batches(const ModelMetadata& metadata, const Sizes& sizes, double dp_rank_concurrency) {
  const double wanted = generates(metadata) ? sizes.pipeline : 4.0 * sizes.pipeline;
  return sizes.pipeline == 1 ? 1 : static_cast<int>(std::max(1.0, std::min(wanted, dp_rank_concurrency)));
}

/// Returns the tokens per second of a data-parallel rank with `sequences` sequences. When generating, each of m groups
/// of b tokens returns once in max(p, m) turns of the slowest stage. Otherwise m forward passes of one sequence each
/// take m + p - 1 turns.
double dp_rank_rate(const ModelMetadata& metadata, const Layout& layout, const Demand& demand, int dp_rank,
                    double sequences) {
  const double m = layout.micro_batches, p = layout.sizes.pipeline;
  if (generates(metadata)) {
    const double group = std::max(1.0, sequences / m);
    return std::min(sequences, m * group) / (std::max(m, p) * stage_times(layout, demand, dp_rank, group).slowest);
  }
  const auto tokens = static_cast<double>(demand.sequence_length);
  return m * tokens / ((m + p - 1) * stage_times(layout, demand, dp_rank, tokens).slowest);
}

}  // namespace

Layout data_parallel(const ModelMetadata& metadata, const Sizes& sizes, const Demand& demand) {
  const auto all = static_cast<double>(demand.concurrency), count = static_cast<double>(sizes.data);
  Layout layout = tensor_pipeline(metadata, sizes, demand, per_dp_rank(demand.concurrency, sizes.data));
  layout.concurrency = std::min(demand.concurrency, layout.concurrency * sizes.data);
  const double busy = std::min(count, all);  // data-parallel ranks that have a sequence
  layout.micro_batches = demand.micro_batches.value_or(planned_micro_batches(metadata, sizes, all / busy));
  layout.estimate.bytes = layout.need();
  double rate = 0;
  for (int dp_rank = 0; dp_rank < sizes.data; ++dp_rank) {
    const double one = generates(metadata) ? 1.0 : static_cast<double>(demand.sequence_length);
    layout.estimate.token_seconds =
        std::max(layout.estimate.token_seconds, stage_times(layout, demand, dp_rank, one).sum);
    const double here = dp_rank_rate(metadata, layout, demand, dp_rank, all / busy);
    rate = dp_rank == 0 ? here : std::min(rate, here);
  }
  layout.estimate.tokens_per_second = rate * busy;
  return layout;
}

}  // namespace pm
