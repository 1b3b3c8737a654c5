// Weight-gathered: every parameter is spread over the ranks (Sharded), or stays with the host (Offload), and comes together a layer at a time.
#include <algorithm>

#include "planner/memory.h"
#include "planner/spread.h"
#include "planner/strategies/layout.h"

namespace pm {

namespace {

constexpr int64_t tiles_of_a_layer = 16;
constexpr int look_up_exchanges = 3;   ///< counts, ids, rows

const Figure& bandwidth(const Demand& demand, int n) { return n > demand.devices_of_a_node ? demand.figures.node_bandwidth : demand.figures.link_bandwidth; }
const Figure& latency(const Demand& demand, int n) { return n > demand.devices_of_a_node ? demand.figures.node_latency : demand.figures.link_latency; }

/// What comes together in a pass: bytes, in so many units; and the tables in which rows are looked up.
struct Traffic { double bytes = 0, units = 0, look_ups = 0; };
Traffic traffic(const Facts& facts, const Spread& spread, Unit unit, int64_t buffer) {
  const auto passes = [&](const std::string& name) {
    return std::any_of(facts.stacks.begin(), facts.stacks.end(), [&](const StackFacts& stack) { return stack.name == name && runs(facts, stack); });
  };
  Traffic out;
  const auto add = [&](int64_t bytes) {
    out.bytes += static_cast<double>(bytes);
    out.units += static_cast<double>((bytes + buffer - 1) / buffer);
  };
  for (const Run& run : spread.runs) {
    if (passes(run.stack)) add(unit == Unit::Layer ? run.bytes : run.bytes * run.layers);   // a layer that is run again is there still
  }
  for (const SpreadTable& table : spread.tables) {
    if (table.scored) add(table.rows * table.row_bytes);
    if (passes(table.stack)) out.look_ups += 1;
  }
  return out;
}

/// Weights of every rank, two buffers in them; whole activations and a KV cache of its own sequences. A unit comes while the one before computes, so the
/// slower of both counts, and the first unit is waited for.
Gathered gathered(const Facts& facts, int n, Unit unit, Residency from, double seconds_a_byte, const Demand& demand, const char* bound) {
  const int64_t each = (demand.concurrency + n - 1) / n, buffer = buffer_bytes(facts, unit, demand.precision);
  const Spread weights = spread(facts, demand.precision);
  Gathered out{tensor_pipeline(facts, {}, demand, each), bound};
  Layout& layout = out.layout;
  for (int rank = 0; rank < n; ++rank) layout.weights.push_back(weights.whole + (from == Residency::Device ? weights.kept(rank, n) : 0) + 2 * buffer);
  layout.gathering = Gathering{from, buffer};
  for (int rank = 0; rank < n && from == Residency::HostMemory; ++rank) layout.gathering->host = std::max(layout.gathering->host, weights.kept(rank, n));
  layout.ranks[0].weights = *std::max_element(layout.weights.begin(), layout.weights.end());
  layout.ranks[0].communicator = (segment_bytes(n) + n - 1) / n;
  const Traffic moved = traffic(facts, weights, unit, buffer);
  const double exchange = n > 1 ? latency(demand, n).value : 0;
  const double fetched = moved.bytes * seconds_a_byte + (moved.units + look_up_exchanges * moved.look_ups) * exchange;
  const double first = moved.units > 0 ? fetched / moved.units : 0;
  const bool generates = facts.task == "generate";
  const double one = generates ? 1.0 : static_cast<double>(demand.sequence_length), busy = std::min<double>(n, static_cast<double>(demand.concurrency));
  const double group = generates ? std::max(1.0, static_cast<double>(demand.concurrency) / busy) : one;
  const auto waits = [&](double tokens) { return first + std::max(fetched, stage_times(layout, demand, 0, tokens).sum); };
  layout.estimate = {layout.need(), waits(one), busy * group / waits(group)};
  fill_cache(facts, demand, each, layout);
  layout.concurrency = std::min(demand.concurrency, layout.concurrency * n);
  layout.sizes.data = n;
  return out;
}

/// Files have weights as they are stored, whatever they are held in: bytes of those over bytes of these.
double stored_bytes(const Facts& facts, DType precision) { return static_cast<double>(spread(facts, facts.dtype).kept(0, 1)) / static_cast<double>(std::max<int64_t>(1, spread(facts, precision).kept(0, 1))); }

/// All but a rank's own part crosses the links.
double spread_seconds(int n, const Demand& demand) { return (n - 1.0) / n / bandwidth(demand, n).value; }

}  // namespace

int64_t buffer_bytes(const Facts& facts, Unit unit, DType precision) {
  const Spread weights = spread(facts, precision);
  const int64_t layer = weights.largest_run();
  return std::max(unit == Unit::Layer ? layer : (layer + tiles_of_a_layer - 1) / tiles_of_a_layer, weights.widest_row);
}

int64_t largest_layer(const Facts& facts, DType precision) {
  int64_t whole = 0;   // what no axis cuts is little; all of it counts, of whichever layer it is
  for (const Part& part : facts.parts) {
    if (part.first >= 0 && part.axis == Axis::None) whole = std::max(whole, held_bytes(facts, part, part.units, precision));
  }
  return whole + spread(facts, precision).largest_run();
}

Gathered sharded(const Facts& facts, int n, Unit unit, const Demand& demand) {
  return gathered(facts, n, unit, Residency::Device, spread_seconds(n, demand), demand, "all other ranks' weights cross the links in each pass");
}

/// Each of n ranks reads 1/n of a unit, then all exchange what they have read. The ranks of a node read from one store of files.
Gathered offloaded(const Facts& facts, int n, Unit unit, Residency from, const Demand& demand) {
  const bool file = from == Residency::File;
  const int stores = (n + demand.devices_of_a_node - 1) / demand.devices_of_a_node;
  const double read = file ? stored_bytes(facts, demand.precision) / stores / demand.figures.file_bandwidth.value : 1.0 / n / demand.figures.host_bandwidth.value;
  return gathered(facts, n, unit, from, read + spread_seconds(n, demand), demand, file ? "all weights are read from files in each pass" : "all weights come from the host's memory in each pass");
}

}  // namespace pm
