// Tensor x pipeline: each stage holds some layers, each of its ranks a share of their heads, columns and rows.
#include <algorithm>

#include "planner/memory.h"
#include "planner/strategies/layout.h"

namespace pm {

namespace {

constexpr int64_t kv_share_percent = 90;   ///< of what is left after the first sequence; the rest is slack for what is only bounded

/// Blocks that the fullest rank has room for, at least one sequence, at most as many as the lane's sequences can fill; 0 without a cache.
void fill_cache(const Facts& facts, const Demand& demand, int64_t lane_concurrency, Layout& layout) {
  const int64_t one = blocks_per_sequence(facts, demand.sequence_length);
  int64_t blocks = one * lane_concurrency;
  bool cache = false;
  for (size_t rank = 0; rank < layout.ranks.size(); ++rank) {
    const Stage& stage = layout.stage_of(rank);
    const int64_t each = block_tokens * kv_bytes_per_token(stage.facts, stage.cuts, static_cast<int>(rank) % layout.sizes.tensor, demand.precision);
    if (each == 0) continue;
    cache = true;
    const int64_t left = std::max<int64_t>(0, demand.device_memory - layout.ranks[rank].total());
    blocks = std::min(blocks, one + left / 100 * kv_share_percent / each);
  }
  layout.kv_blocks = cache ? blocks : 0;
  layout.lane_concurrency = cache ? std::clamp<int64_t>(blocks / one, 1, lane_concurrency) : lane_concurrency;
}

}  // namespace

int64_t blocks_per_sequence(const Facts& facts, int64_t sequence_length) {
  const bool cross = std::any_of(facts.stacks.begin(), facts.stacks.end(), [](const StackFacts& stack) { return stack.cross; });
  return (sequence_length + block_tokens - 1) / block_tokens * (cross ? 2 : 1);
}

Layout tensor_pipeline(const Facts& facts, const Sizes& sizes, const Demand& demand) {
  Layout layout;
  layout.sizes = sizes;
  const int64_t lane_concurrency = (demand.concurrency + sizes.data - 1) / sizes.data, cached = blocks_per_sequence(facts, demand.sequence_length) * block_tokens;
  const int64_t hop = hop_bytes(facts, sizes.pipeline, demand.sequence_length);
  for (const Layers& layers : stages(facts, sizes.pipeline, sizes.tensor, demand.precision)) {
    Facts held = facts_of_stage(facts, layers);
    Cuts cuts = deal(held, sizes.tensor, demand.precision);
    const Stage& stage = layout.stages.emplace_back(Stage{layers, std::move(held), std::move(cuts)});
    for (int t = 0; t < sizes.tensor; ++t) {
      Memory memory;
      memory.weights = stage.cuts.weight_bytes(stage.facts, t);
      memory.kv = cached * kv_bytes_per_token(stage.facts, stage.cuts, t, demand.precision);
      memory.activations = activation_bytes(stage.facts, stage.cuts, t, demand.sequence_length, lane_concurrency) + hop;
      memory.communicator = (segment_bytes(sizes.devices()) + sizes.devices() - 1) / sizes.devices();
      memory.runtime = runtime_bytes(demand.kind);
      layout.ranks.push_back(memory);
      if (memory.total() > layout.need()) layout.fullest = layout.ranks.size() - 1;
    }
  }
  fill_cache(facts, demand, lane_concurrency, layout);
  return layout;
}

}  // namespace pm
