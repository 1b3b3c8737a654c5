// Tensor x pipeline: each stage holds some layers, each of its ranks a share of their heads, columns and rows.
#include <algorithm>

#include "planner/memory.h"
#include "planner/strategies/layout.h"

namespace pm {

namespace {

constexpr int64_t kv_share_percent = 90;   ///< of what is left after the first sequence; the rest is slack for what is only bounded

const StackFacts* stack_of(const Facts& facts, const std::string& name) {
  const auto found = std::find_if(facts.stacks.begin(), facts.stacks.end(), [&](const StackFacts& stack) { return stack.name == name; });
  return found == facts.stacks.end() ? nullptr : &*found;
}

/// Bytes of weights that a pass reads: of stacks that take part, and of tables only where all their rows are multiplied (a head's).
struct Read { double bytes = 0, elements = 0; };
Read read_by(const Stage& stage, int t, DType precision) {
  Read read;
  for (const Part& part : stage.facts.parts) {
    const bool scored = part.stack.empty() || std::any_of(part.also.begin(), part.also.end(), [](const Use& use) { return use.stack.empty(); });
    const bool looked_up = (part.axis == Axis::Vocab || part.axis == Axis::Positions) && !scored;
    const StackFacts* stack = stack_of(stage.facts, part.stack);
    if (looked_up || (stack && !runs(stage.facts, *stack) && !scored)) continue;
    const double runs_of_part = 1.0 + [&] { double more = 0; for (const Use& use : part.also) if (use.first >= 0) more += use.count; return more; }();
    const int64_t units = stage.cuts.range(part.stack, part.axis, part.units, t).size();
    read.elements += static_cast<double>(units * part.elements_per_unit * part.count) * runs_of_part;
    read.bytes += static_cast<double>(held_bytes(stage.facts, part, units, precision) * part.count) * runs_of_part;
  }
  return read;
}

/// All-reduces of a pass: two a layer, three with cross-attention, one of a cut table, one exchange of the best scores.
int exchanges(const Facts& facts) {
  int count = 0;
  for (const StackFacts& stack : facts.stacks) count += runs(facts, stack) ? stack.layers * (stack.cross ? 3 : 2) : 0;
  for (const Part& part : facts.parts) count += part.axis == Axis::Vocab ? 1 : 0;
  return count;
}

double widest(const Facts& facts) {
  int64_t hidden = 0;
  for (const StackFacts& stack : facts.stacks) hidden = std::max(hidden, stack.hidden);
  return static_cast<double>(hidden);
}

int doublings(int n) {
  int steps = 0;
  for (int reach = 1; reach < n; reach *= 2) ++steps;
  return steps;
}

/// max over ranks of max(bytes / bandwidth, 2 x elements x tokens / flops) + keys and values of half a sequence / bandwidth, and then
/// exchanges x (latency x log2 t + 2 (t - 1) / t x tokens x hidden x 4 / link bandwidth), of links between nodes where the stage's ranks lie `across` some.
double stage_seconds(const Stage& stage, int tensor, bool across, const Demand& demand, double tokens) {
  const Figures& f = demand.figures;
  double slowest = 0;
  for (int t = 0; t < tensor; ++t) {
    const Read read = read_by(stage, t, demand.precision);
    const double cached = static_cast<double>(kv_bytes_per_token(stage.facts, stage.cuts, t, demand.precision)) * static_cast<double>(demand.sequence_length) / 2;
    slowest = std::max(slowest, std::max(read.bytes / f.memory_bandwidth.value, 2 * read.elements * tokens / f.flops.value) + tokens * cached / f.memory_bandwidth.value);
  }
  if (tensor == 1) return slowest;
  const double sent = 2.0 * (tensor - 1) / tensor * tokens * widest(stage.facts) * float_bytes;
  const double latency = (across ? f.node_latency : f.link_latency).value, bandwidth = (across ? f.node_bandwidth : f.link_bandwidth).value;
  return slowest + exchanges(stage.facts) * (latency * doublings(tensor) + sent / bandwidth);
}

}  // namespace

int64_t blocks_per_sequence(const Facts& facts, int64_t sequence_length) {
  const bool cross = std::any_of(facts.stacks.begin(), facts.stacks.end(), [](const StackFacts& stack) { return stack.cross; });
  return (sequence_length + block_tokens - 1) / block_tokens * (cross ? 2 : 1);
}

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
  layout.concurrency = cache ? std::clamp<int64_t>(blocks / one, 1, lane_concurrency) : lane_concurrency;
}

bool runs(const Facts& facts, const StackFacts& stack) { return facts.task != "generate" || stack.causal; }

Layout tensor_pipeline(const Facts& facts, const Sizes& sizes, const Demand& demand, int64_t lane_concurrency) {
  Layout layout;
  layout.sizes = sizes;
  const int64_t cached = blocks_per_sequence(facts, demand.sequence_length) * block_tokens, hop = hop_bytes(facts, sizes.pipeline, demand.sequence_length);
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

StageTimes stage_times(const Layout& layout, const Demand& demand, int lane, double tokens) {
  StageTimes times;
  const Figures& f = demand.figures;
  const int pipeline = layout.sizes.pipeline, tensor = layout.sizes.tensor;
  const bool spans = layout.sizes.devices() > demand.devices_of_a_node && demand.devices_of_a_node % tensor != 0;
  for (int s = 0; s < pipeline; ++s) {
    double stage = stage_seconds(layout.stages[static_cast<size_t>(s)], tensor, spans, demand, tokens);
    if (pipeline > 1) {   // states to the next stage; from the last the answer to the first
      const int from = (lane * pipeline + s) * tensor, to = (lane * pipeline + (s + 1) % pipeline) * tensor;
      const bool across = from / demand.devices_of_a_node != to / demand.devices_of_a_node;
      const double bytes = s + 1 < pipeline ? tokens * widest(layout.stages[static_cast<size_t>(s)].facts) * float_bytes : 4 * tokens;
      stage += across ? f.node_latency.value + bytes / f.node_bandwidth.value : f.link_latency.value + bytes / f.link_bandwidth.value;
    }
    times.sum += stage;
    times.slowest = std::max(times.slowest, stage);
  }
  return times;
}

}  // namespace pm
