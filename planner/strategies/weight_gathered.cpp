// Weight-gathered: every parameter is spread over the ranks (Sharded), or stays with the host (Offload), and comes together a layer at a time.
#include <algorithm>
#include <map>

#include "planner/memory.h"
#include "planner/strategies/layout.h"

namespace pm {

namespace {

/// Bytes of each layer, and of each part outside the layers.
std::pair<std::vector<int64_t>, std::vector<int64_t>> units(const Facts& facts, DType dtype) {
  std::vector<int64_t> layers, tables;
  std::map<std::string, size_t> offsets;
  for (const StackFacts& stack : facts.stacks) {
    offsets[stack.name] = layers.size();
    layers.resize(layers.size() + static_cast<size_t>(stack.layers), 0);
  }
  for (const Part& part : facts.parts) {
    const int64_t bytes = part.units * part.elements_per_unit * size_of(part.keep ? part.dtype : dtype);
    if (part.first < 0 || part.stack.empty()) {
      tables.push_back(bytes);
      continue;
    }
    const auto add = [&](const Use& use) {
      for (int i = 0; use.first >= 0 && i < use.count; ++i) {
        const size_t layer = offsets[use.stack] + static_cast<size_t>(use.first + i * use.every);
        if (layer < layers.size()) layers[layer] += bytes;
      }
    };
    add({part.stack, part.first, part.count});
    for (const Use& use : part.also) add(use);
  }
  return {layers, tables};
}

const Figure& bandwidth(const Demand& demand, int n) { return n > demand.devices_of_a_node ? demand.figures.node_bandwidth : demand.figures.link_bandwidth; }
const Figure& latency(const Demand& demand, int n) { return n > demand.devices_of_a_node ? demand.figures.node_latency : demand.figures.link_latency; }

/// `resident` bytes of weights on each of n ranks, two buffers of the largest unit, whole activations and a KV cache of its own sequence.
Gathered gathered(const Facts& facts, int n, const Demand& demand, int64_t resident, double seconds_of_a_pass, const char* bound) {
  const int64_t each = (demand.concurrency + n - 1) / n;
  Gathered out{tensor_pipeline(facts, {}, demand, each), largest_unit(facts, demand.precision), bound};
  Layout& layout = out.layout;
  layout.ranks[0].weights = resident + 2 * out.unit;
  layout.ranks[0].communicator = (segment_bytes(n) + n - 1) / n;
  const bool generates = facts.task == "generate";
  const double one = generates ? 1.0 : static_cast<double>(demand.sequence_length), busy = std::min<double>(n, static_cast<double>(demand.concurrency));
  const double group = generates ? std::max(1.0, static_cast<double>(demand.concurrency) / busy) : one;
  const auto waits = [&](double tokens) { return std::max(seconds_of_a_pass, stage_times(layout, demand, 0, tokens).sum); };
  layout.estimate = {layout.need(), waits(one), busy * group / waits(group)};
  fill_cache(facts, demand, each, layout);
  layout.concurrency = std::min(demand.concurrency, layout.concurrency * n);
  layout.sizes.data = n;
  return out;
}

double exchanges_seconds(const Facts& facts, int n, const Demand& demand) {
  double layers = 0;
  for (const StackFacts& stack : facts.stacks) layers += stack.layers;
  return n > 1 ? layers * latency(demand, n).value : 0;
}

double whole_weights(const Facts& facts, const Demand& demand) { return static_cast<double>(deal(facts, 1, demand.precision).weight_bytes(facts, 0)); }

}  // namespace

int64_t largest_layer(const Facts& facts, DType dtype) {
  const auto [layers, tables] = units(facts, dtype);
  return layers.empty() ? 0 : *std::max_element(layers.begin(), layers.end());
}

int64_t largest_unit(const Facts& facts, DType dtype) {
  const auto [layers, tables] = units(facts, dtype);
  return std::max(largest_layer(facts, dtype), tables.empty() ? 0 : *std::max_element(tables.begin(), tables.end()));
}

Gathered sharded(const Facts& facts, int n, const Demand& demand) {
  const double weights = whole_weights(facts, demand);
  // each pass gathers all that a rank does not hold: (n - 1) / n x P
  const double seconds = (n - 1.0) / n * weights / bandwidth(demand, n).value + exchanges_seconds(facts, n, demand);
  return gathered(facts, n, demand, static_cast<int64_t>(weights) / n + 1, seconds, "all other ranks' weights cross the links in each pass");
}

Gathered offloaded(const Facts& facts, int n, const Demand& demand) {
  const double weights = whole_weights(facts, demand);
  const double fetched = weights / n / demand.figures.host_bandwidth.value, spread = (n - 1.0) / n * weights / bandwidth(demand, n).value;
  return gathered(facts, n, demand, 0, std::max(fetched, spread) + exchanges_seconds(facts, n, demand), "all weights come from the host in each pass");
}

}  // namespace pm
