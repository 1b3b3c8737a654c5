// Plans as JSON: complete, so that a plan file alone drives `serve`. Parsed as strictly as facts, for it may be edited by hand.
#include <limits>
#include <nlohmann/json.hpp>

#include "planner/plan.h"
#include "planner/reader.h"

namespace pm {

using nlohmann::json;

namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max() / 16;  // sums of five terms stay in range
constexpr int most_ranks = 4096;
constexpr Strategy strategies[] = {Strategy::Tensor, Strategy::Pipeline, Strategy::Data, Strategy::Sharded, Strategy::Offload};

json pair_of(const Range& range) { return json::array({range.begin, range.end}); }

json rank_json(const RankPlan& rank) {
  const Memory& m = rank.predicted;
  json rows = json::array();
  for (const Cuts::Row& row : rank.rows) {
    rows.push_back({{"stack", row.stack}, {"axis", name_of(row.axis)}, {"units", row.units}, {"range", pair_of(row.ranges.at(0))}});
  }
  json layers = json::object();
  for (const auto& [stack, range] : rank.layers) layers[stack] = pair_of(range);
  return {{"rank", rank.rank}, {"lane", rank.lane}, {"stage", rank.stage}, {"tensor", rank.tensor}, {"cut", rank.cut()}, {"rows", rows}, {"layers", layers},
          {"predicted", {{"weights", m.weights}, {"kv", m.kv}, {"activations", m.activations}, {"communicator", m.communicator},
                         {"runtime", m.runtime}, {"total", m.total()}}}};
}

Range range_from(const json& value, const std::string& path, int64_t units) {
  const bool good = value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number_integer();
  const Range range = good ? Range{value[0].get<int64_t>(), value[1].get<int64_t>()} : Range{0, -1};
  if (range.begin < 0 || range.end < range.begin || range.end > units) Reader::wrong(path, value, "[begin, end] inside 0.." + std::to_string(units));
  return range;
}

RankPlan rank_from(const Reader& reader, const json& value) {
  RankPlan rank;
  rank.rank = static_cast<int>(reader.integer("rank", 0, most_ranks - 1));
  rank.lane = static_cast<int>(reader.integer("lane", 0, most_ranks - 1, 0));
  rank.stage = static_cast<int>(reader.integer("stage", 0, most_ranks - 1, 0));
  rank.tensor = static_cast<int>(reader.integer("tensor", 0, most_ranks - 1));
  const Reader predicted = reader.object("predicted");
  rank.predicted = {predicted.integer("weights", 0, most), predicted.integer("kv", 0, most), predicted.integer("activations", 0, most),
                    predicted.integer("communicator", 0, most), predicted.integer("runtime", 0, most)};
  const json& rows = reader.list("rows", 256);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Reader row(rows[i], reader.path("rows", i));
    const std::string axis = row.text("axis", 16);
    if (!axis_of(axis)) Reader::fail(row.path("axis"), "\"" + axis + "\"", "one of heads, kv, kv_rows, ffn, vocab, positions, groups");
    const int64_t units = row.integer("units", 1, most);
    row.list("range", 2);
    rank.rows.push_back({row.text("stack", 32), *axis_of(axis), units, {range_from(rows[i]["range"], row.path("range"), units)}});
  }
  const Reader layers = reader.object("layers");
  for (const auto& [stack, range] : value["layers"].items()) rank.layers.push_back({stack, range_from(range, layers.path(stack.c_str()), most)});
  return rank;
}

}  // namespace

json RankPlan::cut() const {
  json out = json::object();
  for (const auto& [stack, range] : layers) out[stack]["layers"] = pair_of(range);
  for (const Cuts::Row& row : rows) {
    json& place = row.stack.empty() ? out : out[row.stack];
    std::string key(name_of(row.axis));
    if (place.contains(key)) key += " of " + std::to_string(row.units);   // a second table or width of the same kind
    place[key] = pair_of(row.ranges.at(0));
  }
  return out;
}

std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::Tensor: return "Tensor";
    case Strategy::Pipeline: return "Pipeline";
    case Strategy::Data: return "Data";
    case Strategy::Sharded: return "Sharded";
    case Strategy::Offload: return "Offload";
  }
  return "?";
}

std::optional<Strategy> strategy_of(std::string_view name) {
  for (Strategy strategy : strategies) if (name_of(strategy) == name) return strategy;
  return std::nullopt;
}

json to_json(const Plan& plan) {
  json ranks = json::array(), rejected = json::array();
  for (const RankPlan& rank : plan.ranks) ranks.push_back(rank_json(rank));
  for (const Rejected& one : plan.rejected) rejected.push_back({{"strategy", one.strategy}, {"reason", one.reason}, {"message", one.message}});
  return {{"strategy", name_of(plan.strategy)}, {"sizes", {{"tensor", plan.tensor}, {"pipeline", plan.pipeline}, {"data", plan.data}}},
          {"precision", name_of(plan.precision)}, {"sequenceLength", plan.sequence_length}, {"kvBlocks", plan.kv_blocks},
          {"concurrency", plan.concurrency}, {"shmBytes", plan.shm_bytes}, {"deviceMemory", plan.device_memory}, {"memorySource", plan.memory_source},
          {"ranks", ranks}, {"reason", plan.reason}, {"message", plan.message}, {"rejected", rejected}};
}

Plan plan_from_json(const json& value) {
  const Reader reader(value, "plan");
  Plan plan;
  const auto strategy = strategy_of(reader.text("strategy", 16));
  if (!strategy) Reader::fail(reader.path("strategy"), "\"" + reader.text("strategy", 16) + "\"", "Tensor, Pipeline, Data, Sharded or Offload");
  plan.strategy = *strategy;
  const Reader sizes = reader.object("sizes");
  plan.tensor = static_cast<int>(sizes.integer("tensor", 1, most_ranks));
  plan.pipeline = static_cast<int>(sizes.integer("pipeline", 1, most_ranks, 1));
  plan.data = static_cast<int>(sizes.integer("data", 1, most_ranks, 1));
  const auto precision = dtype_of(reader.text("precision", 16));
  if (!precision) Reader::fail(reader.path("precision"), "\"" + reader.text("precision", 16) + "\"", "F32, F16, BF16 or I8");
  plan.precision = *precision;
  plan.sequence_length = reader.integer("sequenceLength", 1, most);
  plan.kv_blocks = reader.integer("kvBlocks", 0, most);
  plan.concurrency = reader.integer("concurrency", 1, most);
  plan.shm_bytes = reader.integer("shmBytes", 0, most);
  plan.device_memory = reader.integer("deviceMemory", 1, most);
  plan.memory_source = reader.text("memorySource", 256);
  plan.reason = reader.text("reason", 128);
  plan.message = reader.text("message", 8192);
  const json& ranks = reader.list("ranks", most_ranks);
  const int64_t wanted = int64_t{plan.tensor} * plan.pipeline * plan.data;
  if (static_cast<int64_t>(ranks.size()) != wanted) Reader::fail(reader.path("ranks"), std::to_string(ranks.size()) + " ranks", std::to_string(wanted));
  for (size_t i = 0; i < ranks.size(); ++i) plan.ranks.push_back(rank_from({ranks[i], reader.path("ranks", i)}, ranks[i]));
  const json& rejected = reader.list("rejected", 256);
  for (size_t i = 0; i < rejected.size(); ++i) {
    const Reader one(rejected[i], reader.path("rejected", i));
    plan.rejected.push_back({one.text("strategy", 64), one.text("reason", 64), one.text("message", 4096)});
  }
  return plan;
}

}  // namespace pm
