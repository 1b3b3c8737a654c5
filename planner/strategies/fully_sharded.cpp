// SPDX-License-Identifier: Apache-2.0
// Models the fully sharded strategies: every parameter is sharded over the ranks (Sharded: FSDP, ZeRO-3) or stays with
// the host (Offload), and is all-gathered one layer at a time.
#include <algorithm>

#include "planner/memory.h"
#include "planner/strategies/layout.h"
#include "planner/weight_shards.h"

namespace pm {

namespace {

constexpr int64_t tiles_of_a_layer = 16;
constexpr int look_up_exchanges = 3;  ///< counts, ids, rows

const HardwareValue& bandwidth(const Demand& demand, int n) {
  return n > demand.devices_of_a_node ? demand.hardware_values.node_bandwidth : demand.hardware_values.link_bandwidth;
}
const HardwareValue& latency(const Demand& demand, int n) {
  return n > demand.devices_of_a_node ? demand.hardware_values.node_latency : demand.hardware_values.link_latency;
}

/// The traffic of one forward pass: gathered bytes, gather units, and tables in which rows are looked up.
struct Traffic {
  double bytes = 0, units = 0, look_ups = 0;
};
Traffic traffic(const ModelMetadata& metadata, const WeightShards& shards, Unit unit, int64_t buffer) {
  const auto passes = [&](const std::string& name) {
    return std::any_of(metadata.stacks.begin(), metadata.stacks.end(),
                       [&](const StackMetadata& stack) { return stack.name == name && runs(metadata, stack); });
  };
  Traffic out;
  const auto add = [&](int64_t bytes) {
    out.bytes += static_cast<double>(bytes);
    out.units += static_cast<double>((bytes + buffer - 1) / buffer);
  };
  for (const FlatParamInfo& run : shards.flat_params) {
    if (passes(run.stack))
      add(unit == Unit::Layer ? run.bytes
                              : run.bytes * run.layers);  // a layer that is used again is still in the buffer
  }
  for (const ShardedTable& table : shards.tables) {
    if (table.scored) add(table.rows * table.row_bytes);
    if (passes(table.stack)) out.look_ups += 1;
  }
  return out;
}

/// Returns the layout of a fully sharded model. The weights of a rank include two gather buffers; activations and KV
/// cache are those of its own sequences. A unit is gathered while the one before computes, so the slower of both
/// counts, plus the wait for the first unit.
FullyShardedLayout fully_sharded(const ModelMetadata& metadata, int n, Unit unit, Residency from, double seconds_a_byte,
                                 const Demand& demand, const char* bound) {
  const int64_t each = per_dp_rank(demand.concurrency, n), buffer = buffer_bytes(metadata, unit, demand.precision);
  const WeightShards weights = shard_weights(metadata, demand.precision);
  FullyShardedLayout out{tensor_pipeline(metadata, {}, demand, each), bound};
  Layout& layout = out.layout;
  for (int rank = 0; rank < n; ++rank)
    layout.weights.push_back(weights.whole + (from == Residency::Device ? weights.rank_bytes(rank, n) : 0) +
                             2 * buffer);
  layout.gathering = Gathering{from, buffer};
  for (int rank = 0; rank < n && from == Residency::HostMemory; ++rank)
    layout.gathering->host = std::max(layout.gathering->host, weights.rank_bytes(rank, n));
  layout.ranks[0].weights = *std::max_element(layout.weights.begin(), layout.weights.end());
  layout.ranks[0].communicator = (segment_bytes(n) + n - 1) / n;
  const Traffic moved = traffic(metadata, weights, unit, buffer);
  const double exchange = n > 1 ? latency(demand, n).value : 0;
  const double fetched = moved.bytes * seconds_a_byte + (moved.units + look_up_exchanges * moved.look_ups) * exchange;
  const double first = moved.units > 0 ? fetched / moved.units : 0;
  const bool generates = metadata.task == "generate";
  const double one = generates ? 1.0 : static_cast<double>(demand.sequence_length),
               busy = std::min<double>(n, static_cast<double>(demand.concurrency));
  const double group = generates ? std::max(1.0, static_cast<double>(demand.concurrency) / busy) : one;
  const auto waits = [&](double tokens) {
    return first + std::max(fetched, stage_times(layout, demand, 0, tokens).sum);
  };
  layout.estimate = {layout.need(), waits(one), busy * group / waits(group)};
  fill_cache(metadata, demand, each, layout);
  layout.concurrency = std::min(demand.concurrency, layout.concurrency * n);
  layout.sizes.data = n;
  return out;
}

/// Returns the bytes of weights as files store them over the bytes of the planned precision.
double stored_bytes(const ModelMetadata& metadata, DType precision) {
  return static_cast<double>(shard_weights(metadata, metadata.dtype).rank_bytes(0, 1)) /
         static_cast<double>(std::max<int64_t>(1, shard_weights(metadata, precision).rank_bytes(0, 1)));
}

/// Returns the seconds per byte of an all-gather, in which everything but a rank's own shard crosses the links.
double spread_seconds(int n, const Demand& demand) { return (n - 1.0) / n / bandwidth(demand, n).value; }

}  // namespace

int64_t buffer_bytes(const ModelMetadata& metadata, Unit unit, DType precision) {
  const WeightShards weights = shard_weights(metadata, precision);
  const int64_t layer = weights.largest_flat_param();
  return std::max(unit == Unit::Layer ? layer : (layer + tiles_of_a_layer - 1) / tiles_of_a_layer, weights.widest_row);
}

int64_t largest_layer(const ModelMetadata& metadata, DType precision) {
  int64_t whole = 0;  // replicated parameters are small; the largest of any layer counts
  for (const Part& part : metadata.parts) {
    if (part.first >= 0 && part.axis == Axis::None)
      whole = std::max(whole, held_bytes(metadata, part, part.units, precision));
  }
  return whole + shard_weights(metadata, precision).largest_flat_param();
}

FullyShardedLayout sharded(const ModelMetadata& metadata, int n, Unit unit, const Demand& demand) {
  return fully_sharded(metadata, n, unit, Residency::Device, spread_seconds(n, demand), demand,
                       "all other ranks' weights cross the links in each pass");
}

/// Each of n ranks reads 1/n of a unit, then all ranks all-gather it. The ranks of a node share the bandwidth of its
/// files.
FullyShardedLayout offloaded(const ModelMetadata& metadata, int n, Unit unit, Residency from, const Demand& demand) {
  const bool file = from == Residency::File;
  const int stores = (n + demand.devices_of_a_node - 1) / demand.devices_of_a_node;
  const double read =
      file ? stored_bytes(metadata, demand.precision) / stores / demand.hardware_values.file_bandwidth.value
           : 1.0 / n / demand.hardware_values.host_bandwidth.value;
  return fully_sharded(
      metadata, n, unit, from, read + spread_seconds(n, demand), demand,
      file ? "all weights are read from files in each pass" : "all weights come from the host's memory in each pass");
}

}  // namespace pm
