// SPDX-License-Identifier: Apache-2.0
// Models tensor x pipeline parallelism: each stage holds some layers, and each of its ranks holds a shard of their
// heads, columns and rows.
#include <algorithm>
#include <cmath>

#include "planner/memory.h"
#include "planner/strategies/layout.h"

namespace pm {

namespace {

constexpr int64_t kv_share_percent =
    90;  ///< share of the memory that remains after the first sequence; the rest is slack for estimates

const StackMetadata* stack_of(const ModelMetadata& metadata, const std::string& name) {
  const auto found = std::find_if(metadata.stacks.begin(), metadata.stacks.end(),
                                  [&](const StackMetadata& stack) { return stack.name == name; });
  return found == metadata.stacks.end() ? nullptr : &*found;
}

/// Bytes of weights that a forward pass of `tokens` tokens reads: those of stacks that take part, of tables only where
/// all rows are multiplied (LM heads), and of experts those that some token is expected to choose. `elements` are those
/// that each token is multiplied with.
struct Read {
  double bytes = 0, elements = 0;
};
Read read_by(const Stage& stage, int t, DType precision, double tokens) {
  Read read;
  for (const Part& part : stage.metadata.parts) {
    const bool scored = part.stack.empty() || std::any_of(part.also.begin(), part.also.end(),
                                                          [](const Use& use) { return use.stack.empty(); });
    const bool looked_up = (part.axis == Axis::Vocab || part.axis == Axis::Positions) && !scored;
    const StackMetadata* stack = stack_of(stage.metadata, part.stack);
    if (part.axis == Axis::Passages) continue;  // read once for a question, not for each token
    if (looked_up || (stack && !runs(stage.metadata, *stack) && !scored)) continue;
    const double runs_of_part = 1.0 + [&] {
      double more = 0;
      for (const Use& use : part.also)
        if (use.first >= 0) more += use.count;
      return more;
    }();
    const int64_t units = stage.partition.range(part.stack, part.axis, part.units, t, part.layout).size();
    const double chosen = part.routed.experts == 0
                              ? 1.0
                              : static_cast<double>(part.routed.per_token) / static_cast<double>(part.routed.experts);
    const double touched = 1.0 - std::pow(1.0 - chosen, tokens);  // where every choice is as likely
    read.elements += static_cast<double>(units * part.elements_per_unit * part.count) * runs_of_part * chosen;
    read.bytes +=
        static_cast<double>(held_bytes(stage.metadata, part, units, precision) * part.count) * runs_of_part * touched;
  }
  return read;
}

/// Returns the exchanges of a forward pass: two all-reduces per layer, three with cross-attention, those of further
/// blocks, one of a partitioned embedding, one exchange of the best scores.
int exchanges(const ModelMetadata& metadata) {
  int count = 0;
  for (const StackMetadata& stack : metadata.stacks)
    count += runs(metadata, stack) ? stack.layers * ((stack.cross ? 3 : 2) + static_cast<int>(stack.exchanges)) : 0;
  for (const Part& part : metadata.parts) count += part.axis == Axis::Vocab ? 1 : 0;
  return count;
}

double widest(const ModelMetadata& metadata) {
  int64_t hidden = 0;
  for (const StackMetadata& stack : metadata.stacks) hidden = std::max(hidden, stack.hidden);
  return static_cast<double>(hidden);
}

/// Returns the bytes of a step of tensor rank `t` of a stage, received and sent hidden states included.
int64_t step_bytes(const ModelMetadata& metadata, const Stage& stage, int t, const Sizes& sizes, const Demand& demand,
                   int64_t dp_rank_concurrency) {
  return activation_bytes(stage.metadata, stage.partition, t, demand.sequence_length, dp_rank_concurrency,
                          {demand.step_tokens, demand.kind, demand.precision}) +
         hop_bytes(metadata, sizes.pipeline, demand.sequence_length, demand.step_tokens);
}

/// Returns the bytes of keys and values of a token on tensor rank `t` of a stage.
int64_t token_kv_bytes(const Stage& stage, int t, const Demand& demand) {
  return kv_bytes_per_token(stage.metadata, stage.partition, t, demand.precision, demand.kv_precision);
}

int doublings(int n) {
  int steps = 0;
  for (int reach = 1; reach < n; reach *= 2) ++steps;
  return steps;
}

/// Returns the seconds of a stage: max over ranks of max(bytes / bandwidth, 2 x elements x tokens / flops) + keys and
/// values of half a sequence / bandwidth, and then exchanges x (latency x log2 t + 2 (t - 1) / t x tokens x hidden x 4
/// / link bandwidth), of links between nodes where the stage's ranks lie `across` some.
double stage_seconds(const Stage& stage, int tensor, bool across, const Demand& demand, double tokens) {
  const HardwareValues& f = demand.hardware_values;
  double slowest = 0;
  for (int t = 0; t < tensor; ++t) {
    const Read read = read_by(stage, t, demand.precision, tokens);
    const double cached =
        static_cast<double>(token_kv_bytes(stage, t, demand)) * static_cast<double>(demand.sequence_length) / 2;
    slowest =
        std::max(slowest, std::max(read.bytes / f.memory_bandwidth.value, 2 * read.elements * tokens / f.flops.value) +
                              tokens * cached / f.memory_bandwidth.value);
  }
  if (tensor == 1) return slowest;
  const double sent = 2.0 * (tensor - 1) / tensor * tokens * widest(stage.metadata) * float_bytes;
  const double latency = (across ? f.node_latency : f.link_latency).value,
               bandwidth = (across ? f.node_bandwidth : f.link_bandwidth).value;
  return slowest + exchanges(stage.metadata) * (latency * doublings(tensor) + sent / bandwidth);
}

}  // namespace

int64_t blocks_per_sequence(const ModelMetadata& metadata, int64_t sequence_length) {
  return blocks_for(sequence_length) + blocks_for(source_length(metadata, sequence_length));
}

void fill_cache(const ModelMetadata& metadata, const Demand& demand, int64_t dp_rank_concurrency, Layout& layout) {
  const int64_t one = blocks_per_sequence(metadata, demand.sequence_length);
  int64_t blocks = one * dp_rank_concurrency;
  bool cache = false;
  for (size_t rank = 0; rank < layout.ranks.size(); ++rank) {
    const Stage& stage = layout.stage_of(rank);
    const int64_t each = block_tokens * token_kv_bytes(stage, static_cast<int>(rank) % layout.sizes.tensor, demand);
    if (each == 0) continue;
    cache = true;
    const int64_t left = std::max<int64_t>(0, demand.device_memory - layout.ranks[rank].total());
    blocks = std::min(blocks, one + left / 100 * kv_share_percent / each);
  }
  layout.kv_blocks = cache ? blocks : 0;
  layout.concurrency = cache ? std::clamp<int64_t>(blocks / one, 1, dp_rank_concurrency) : dp_rank_concurrency;
}

bool runs(const ModelMetadata& metadata, const StackMetadata& stack) {
  return metadata.task != "generate" || stack.causal;
}

Layout tensor_pipeline(const ModelMetadata& metadata, const Sizes& sizes, const Demand& demand,
                       int64_t dp_rank_concurrency) {
  Layout layout;
  layout.sizes = sizes;
  layout.step_tokens = demand.step_tokens;
  const int64_t cached = blocks_per_sequence(metadata, demand.sequence_length) * block_tokens;
  for (const Layers& layers : stages(metadata, sizes.pipeline, sizes.tensor, demand.precision)) {
    ModelMetadata held = stage_metadata(metadata, layers);
    Partition partition = make_partition(held, sizes.tensor, demand.precision);
    const Stage& stage = layout.stages.emplace_back(Stage{layers, std::move(held), std::move(partition)});
    for (int t = 0; t < sizes.tensor; ++t) {
      Memory memory;
      memory.weights = stage.partition.weight_bytes(stage.metadata, t);
      memory.kv = cached * token_kv_bytes(stage, t, demand) +
                  dp_rank_concurrency * state_bytes_per_sequence(stage.metadata, stage.partition, t);
      memory.activations = step_bytes(metadata, stage, t, sizes, demand, dp_rank_concurrency);
      memory.communicator = (segment_bytes(sizes.devices()) + sizes.devices() - 1) / sizes.devices();
      memory.runtime = runtime_bytes(demand.kind);
      layout.ranks.push_back(memory);
      if (memory.total() > layout.need()) layout.fullest = layout.ranks.size() - 1;
    }
  }
  fill_cache(metadata, demand, dp_rank_concurrency, layout);
  return layout;
}

void grow_step(const ModelMetadata& metadata, const Demand& demand, Layout& layout) {
  if (demand.kind != DeviceKind::GPU) return;
  const int64_t dp_rank_concurrency = per_dp_rank(demand.concurrency, layout.sizes.data);
  const Sizes sizes = layout.sizes;
  for (int64_t tokens = max_gpu_step_tokens; tokens > demand.step_tokens; tokens /= 2) {
    if (metadata.task == "generate" && tokens / 2 >= demand.sequence_length) continue;
    Layout grown = layout;
    Demand larger = demand;
    grown.step_tokens = larger.step_tokens = tokens;
    bool fits = true;
    for (size_t rank = 0; rank < grown.ranks.size(); ++rank) {
      Memory& memory = grown.ranks[rank];
      const int64_t left = demand.device_memory - memory.total(), before = memory.activations;
      memory.activations = step_bytes(metadata, grown.stage_of(rank), static_cast<int>(rank) % sizes.tensor, sizes,
                                      larger, dp_rank_concurrency);
      fits = fits && 8 * (memory.activations - before) <= left;
      if (memory.total() > grown.need()) grown.fullest = rank;
    }
    if (!fits) continue;
    fill_cache(metadata, larger, dp_rank_concurrency, grown);
    grown.concurrency = std::min(demand.concurrency, grown.concurrency * sizes.data);
    layout = std::move(grown);
    return;
  }
}

StageTimes stage_times(const Layout& layout, const Demand& demand, int dp_rank, double tokens) {
  StageTimes times;
  const HardwareValues& f = demand.hardware_values;
  const int pipeline = layout.sizes.pipeline, tensor = layout.sizes.tensor;
  const bool spans = layout.sizes.devices() > demand.devices_of_a_node && demand.devices_of_a_node % tensor != 0;
  for (int s = 0; s < pipeline; ++s) {
    double stage = stage_seconds(layout.stages[static_cast<size_t>(s)], tensor, spans, demand, tokens);
    if (pipeline > 1) {  // hidden states go to the next stage; sampled tokens go from the last stage to the first
      const int from = (dp_rank * pipeline + s) * tensor, to = (dp_rank * pipeline + (s + 1) % pipeline) * tensor;
      const bool across = from / demand.devices_of_a_node != to / demand.devices_of_a_node;
      const double bytes =
          s + 1 < pipeline ? tokens * widest(layout.stages[static_cast<size_t>(s)].metadata) * float_bytes : 4 * tokens;
      stage += across ? f.node_latency.value + bytes / f.node_bandwidth.value
                      : f.link_latency.value + bytes / f.link_bandwidth.value;
    }
    times.sum += stage;
    times.slowest = std::max(times.slowest, stage);
  }
  return times;
}

}  // namespace pm
