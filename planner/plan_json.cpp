// SPDX-License-Identifier: Apache-2.0
// Writes and parses plans as JSON. A plan file is complete, so that it alone drives `serve`. It is parsed as strictly
// as metadata because it may be edited by hand.
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/json_reader.h"
#include "planner/plan.h"
#include "planner/strategy_names.h"

namespace pm {

using base::JsonReader;
using nlohmann::json;

namespace {

constexpr int64_t most = std::numeric_limits<int64_t>::max() / 16;  // sums of five terms stay in range
constexpr int max_ranks = 4096;
constexpr int64_t max_step_tokens = 1 << 20;
constexpr Objective objectives[] = {Objective::Latency, Objective::Throughput, Objective::Memory};
constexpr Residency residencies[] = {Residency::Device, Residency::HostMemory, Residency::File};

json pair_of(const Range& range) { return json::array({range.begin, range.end}); }

json rank_json(const RankPlan& rank) {
  const Memory& m = rank.predicted;
  json rows = json::array();
  for (const Partition::Row& row : rank.rows) {
    rows.push_back({{"stack", row.stack},
                    {"axis", name_of(row.axis)},
                    {"units", row.units},
                    {"range", pair_of(row.ranges.at(0))}});
    if (row.layout != 0) rows.back()["layout"] = row.layout;
  }
  json layers = json::array();  // in the order in which the stacks run
  for (const auto& [stack, range] : rank.layers) layers.push_back({{"stack", stack}, {"range", pair_of(range)}});
  return {{"rank", rank.rank},
          {"dpRank", rank.dp_rank},
          {"stage", rank.stage},
          {"tensor", rank.tensor},
          {"shard", rank.shard()},
          {"rows", rows},
          {"layers", layers},
          {"predicted",
           {{"weights", m.weights},
            {"kv", m.kv},
            {"activations", m.activations},
            {"communicator", m.communicator},
            {"runtime", m.runtime},
            {"total", m.total()}}}};
}

Range range_from(const json& value, const std::string& path, int64_t units) {
  const bool good =
      value.is_array() && value.size() == 2 && value[0].is_number_integer() && value[1].is_number_integer();
  const Range range = good ? Range{value[0].get<int64_t>(), value[1].get<int64_t>()} : Range{0, -1};
  if (range.begin < 0 || range.end < range.begin || range.end > units)
    JsonReader::wrong(path, value, "[begin, end] inside 0.." + std::to_string(units));
  return range;
}

/// Plans from before there were pipeline stages, which running replicas may still have, name their layers in an object:
/// all layers of each stack.
void read_layers(const JsonReader& reader, const json& value, Layers& layers) {
  if (value.contains("layers") && value["layers"].is_object()) {
    const JsonReader named = reader.object("layers");
    for (const auto& [stack, range] : value["layers"].items())
      layers.push_back({stack, range_from(range, named.path(stack.c_str()), most)});
    return;
  }
  const json& list = reader.list("layers", 16);
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonReader layer(list[i], reader.path("layers", i));
    layer.list("range", 2);
    layers.push_back({layer.text("stack", 32), range_from(list[i]["range"], layer.path("range"), most)});
  }
}

RankPlan rank_from(const JsonReader& reader, const json& value) {
  RankPlan rank;
  rank.rank = static_cast<int>(reader.integer("rank", 0, max_ranks - 1));
  rank.dp_rank = static_cast<int>(reader.integer("dpRank", 0, max_ranks - 1, 0));
  rank.stage = static_cast<int>(reader.integer("stage", 0, max_ranks - 1, 0));
  rank.tensor = static_cast<int>(reader.integer("tensor", 0, max_ranks - 1));
  const JsonReader predicted = reader.object("predicted");
  rank.predicted = {predicted.integer("weights", 0, most), predicted.integer("kv", 0, most),
                    predicted.integer("activations", 0, most), predicted.integer("communicator", 0, most),
                    predicted.integer("runtime", 0, most)};
  const json& rows = reader.list("rows", 256);
  for (size_t i = 0; i < rows.size(); ++i) {
    const JsonReader row(rows[i], reader.path("rows", i));
    const std::string axis = row.text("axis", 16);
    if (!axis_of(axis))
      JsonReader::fail(row.path("axis"), "\"" + axis + "\"",
                       "one of heads, kv, kv_rows, ffn, vocab, positions, groups");
    const int64_t units = row.integer("units", 1, most);
    row.list("range", 2);
    rank.rows.push_back({row.text("stack", 32),
                         *axis_of(axis),
                         units,
                         {range_from(rows[i]["range"], row.path("range"), units)},
                         static_cast<int>(row.integer("layout", 0, max_layouts, 0))});
  }
  read_layers(reader, value, rank.layers);
  return rank;
}

/// Returns a number that is finite and not negative.
double positive(const json& object, const char* key, const std::string& path) {
  const bool good = object.contains(key) && object[key].is_number() && std::isfinite(object[key].get<double>()) &&
                    object[key].get<double>() >= 0;
  if (!good) JsonReader::wrong(path + "." + key, object.contains(key) ? object[key] : json(), "a number of at least 0");
  return object[key].get<double>();
}

json estimate_json(const Estimate& e) {
  return {{"bytes", e.bytes}, {"tokenSeconds", e.token_seconds}, {"tokensPerSecond", e.tokens_per_second}};
}

Estimate estimate_from(const JsonReader& parent, const json& value) {
  const JsonReader reader = parent.object("estimate");
  const std::string path = parent.path("estimate");
  return {reader.integer("bytes", 0, most), positive(value["estimate"], "tokenSeconds", path),
          positive(value["estimate"], "tokensPerSecond", path)};
}

json rejected_json(const Rejected& one) {
  json out{{"strategy", one.strategy}, {"reason", one.reason}, {"message", one.message}};
  if (one.estimate) out["estimate"] = estimate_json(*one.estimate);
  return out;
}

/// Checks that rank = (dp_rank x pipeline + stage) x tensor + t, and that ranks of one stage hold the same layers.
void check_places(const Plan& plan) {
  for (size_t i = 0; i < plan.ranks.size(); ++i) {
    const RankPlan& rank = plan.ranks[i];
    const int here = static_cast<int>(i), stage = here / plan.tensor % plan.pipeline,
              dp_rank = here / plan.tensor / plan.pipeline;
    const std::string path = "plan.ranks[" + std::to_string(i) + "]";
    if (rank.rank != here || rank.dp_rank != dp_rank || rank.stage != stage || rank.tensor != here % plan.tensor) {
      JsonReader::fail(path,
                       "rank " + std::to_string(rank.rank) + " in dp_rank " + std::to_string(rank.dp_rank) +
                           ", stage " + std::to_string(rank.stage) + ", tensor " + std::to_string(rank.tensor),
                       "rank " + std::to_string(here) + " in dp_rank " + std::to_string(dp_rank) + ", stage " +
                           std::to_string(stage) + ", tensor " + std::to_string(here % plan.tensor));
    }
    const RankPlan& first = plan.ranks[static_cast<size_t>(stage * plan.tensor)];
    if (rank.layers != first.layers)
      JsonReader::fail(path + ".layers", "other layers",
                       "those of rank " + std::to_string(first.rank) + ", which has the same stage");
  }
}

}  // namespace

json RankPlan::shard() const {
  json out = json::object();
  for (const auto& [stack, range] : layers) out[stack]["layers"] = pair_of(range);
  for (const Partition::Row& row : rows) {
    json& place = row.stack.empty() ? out : out[row.stack];
    std::string key(name_of(row.axis));
    if (row.layout != 0) key += " of layout " + std::to_string(row.layout);
    if (place.contains(key)) key += " of " + std::to_string(row.units);  // a second table or width of the same kind
    place[key] = pair_of(row.ranges.at(0));
  }
  return out;
}

std::string_view name_of(Strategy strategy) {
  switch (strategy) {
    case Strategy::Tensor:
      return "Tensor";
    case Strategy::Pipeline:
      return "Pipeline";
    case Strategy::Data:
      return "Data";
    case Strategy::Sharded:
      return "Sharded";
    case Strategy::Offload:
      return "Offload";
  }
  return "?";
}

std::optional<Strategy> strategy_of(std::string_view name) {
  for (Strategy strategy : strategies)
    if (name_of(strategy) == name) return strategy;
  return std::nullopt;
}

std::string_view name_of(Objective objective) {
  switch (objective) {
    case Objective::Latency:
      return "Latency";
    case Objective::Throughput:
      return "Throughput";
    case Objective::Memory:
      return "Memory";
  }
  return "?";
}

std::optional<Objective> objective_of(std::string_view name) {
  for (Objective objective : objectives)
    if (name_of(objective) == name) return objective;
  return std::nullopt;
}

std::string_view name_of(Residency residency) {
  switch (residency) {
    case Residency::Device:
      return "Device";
    case Residency::HostMemory:
      return "HostMemory";
    case Residency::File:
      return "File";
  }
  return "?";
}

std::optional<Residency> residency_of(std::string_view name) {
  for (Residency residency : residencies)
    if (name_of(residency) == name) return residency;
  return std::nullopt;
}

json to_json(const Plan& plan) {
  json ranks = json::array(), rejected = json::array(), hardware_values = json::array();
  for (const RankPlan& rank : plan.ranks) ranks.push_back(rank_json(rank));
  for (const Rejected& one : plan.rejected) rejected.push_back(rejected_json(one));
  for (const UsedHardwareValue& one : plan.hardware_values) {
    hardware_values.push_back(
        {{"name", one.name}, {"unit", one.unit}, {"value", one.value.value}, {"source", one.value.source}});
  }
  json out{{"strategy", name_of(plan.strategy)},
           {"sizes", {{"tensor", plan.tensor}, {"pipeline", plan.pipeline}, {"data", plan.data}}},
           {"microBatches", plan.micro_batches},
           {"objective", name_of(plan.objective)},
           {"precision", name_of(plan.precision)},
           {"sequenceLength", plan.sequence_length},
           {"kvBlocks", plan.kv_blocks},
           {"concurrency", plan.concurrency},
           {"shmBytes", plan.shm_bytes},
           {"deviceMemory", plan.device_memory},
           {"memorySource", plan.memory_source},
           {"ranks", ranks},
           {"reason", plan.reason},
           {"message", plan.message},
           {"estimate", estimate_json(plan.estimate)},
           {"hardware", hardware_values},
           {"rejected", rejected}};
  if (plan.kv_precision) out["kvPrecision"] = name_of(*plan.kv_precision);
  if (plan.adapter_bytes > 0) out["adapterBytes"] = plan.adapter_bytes;
  if (plan.draft) out["draft"] = {{"bytes", plan.draft->bytes}, {"kvBlocks", plan.draft->kv_blocks}};
  if (plan.step_tokens != step_tokens) out["stepTokens"] = plan.step_tokens;
  if (plan.gathering)
    out["gathering"] = {{"from", name_of(plan.gathering->from)}, {"bufferBytes", plan.gathering->buffer}};
  if (plan.gathering && plan.gathering->host > 0) out["gathering"]["hostBytes"] = plan.gathering->host;
  return out;
}

namespace {

/// Reads "gathering", which Sharded and Offload have and other strategies do not.
void read_gathering(const JsonReader& reader, Plan& plan) {
  const bool gathers = plan.strategy == Strategy::Sharded || plan.strategy == Strategy::Offload;
  if (reader.has("gathering") != gathers) {
    JsonReader::fail(reader.path("gathering"), gathers ? "nothing" : "something",
                     gathers ? "where weights are and the bytes of a buffer"
                             : "nothing beside strategy " + std::string(name_of(plan.strategy)));
  }
  if (!gathers) return;
  const JsonReader gathering = reader.object("gathering");
  const auto from = residency_of(gathering.text("from", 16));
  if (!from || (*from == Residency::Device) != (plan.strategy == Strategy::Sharded)) {
    JsonReader::fail(gathering.path("from"), "\"" + gathering.text("from", 16) + "\"",
                     plan.strategy == Strategy::Sharded ? "Device" : "HostMemory or File");
  }
  plan.gathering =
      Gathering{*from, gathering.integer("bufferBytes", 1, most), gathering.integer("hostBytes", 0, most, 0)};
  if (plan.tensor != 1 || plan.pipeline != 1)
    JsonReader::fail(reader.path("sizes"), "tensor or pipeline above 1",
                     "data alone, beside strategy " + std::string(name_of(plan.strategy)));
}

}  // namespace

Plan plan_from_json(const json& value) {
  const JsonReader reader(value, "plan");
  Plan plan;
  const auto strategy = strategy_of(reader.text("strategy", 16));
  if (!strategy) JsonReader::fail(reader.path("strategy"), "\"" + reader.text("strategy", 16) + "\"", strategy_list());
  plan.strategy = *strategy;
  const JsonReader sizes = reader.object("sizes");
  plan.tensor = static_cast<int>(sizes.integer("tensor", 1, max_ranks));
  plan.pipeline = static_cast<int>(sizes.integer("pipeline", 1, max_ranks, 1));
  plan.data = static_cast<int>(sizes.integer("data", 1, max_ranks, 1));
  read_gathering(reader, plan);
  plan.micro_batches = static_cast<int>(reader.integer("microBatches", 1, max_ranks, 1));
  const std::string objective = reader.text("objective", 16, "Latency");
  if (!objective_of(objective))
    JsonReader::fail(reader.path("objective"), "\"" + objective + "\"", "Latency, Throughput or Memory");
  plan.objective = *objective_of(objective);
  const auto precision = precision_of(reader.text("precision", 16));
  if (!precision)
    JsonReader::fail(reader.path("precision"), "\"" + reader.text("precision", 16) + "\"",
                     "F32, F16, BF16, I8, I4 or I8A8");
  plan.precision = *precision;
  if (const std::string name = reader.text("kvPrecision", 16, ""); !name.empty()) {
    plan.kv_precision = kv_precision_of(name);
    if (!plan.kv_precision) JsonReader::fail(reader.path("kvPrecision"), "\"" + name + "\"", "I8");
  }
  plan.sequence_length = reader.integer("sequenceLength", 1, most);
  plan.step_tokens = reader.integer("stepTokens", 1, max_step_tokens, step_tokens);
  plan.kv_blocks = reader.integer("kvBlocks", 0, most);
  plan.concurrency = reader.integer("concurrency", 1, most);
  plan.shm_bytes = reader.integer("shmBytes", 0, most);
  plan.device_memory = reader.integer("deviceMemory", 1, most);
  plan.memory_source = reader.text("memorySource", 256);
  plan.adapter_bytes = reader.integer("adapterBytes", 0, most, 0);
  if (reader.has("draft")) {
    const JsonReader draft = reader.object("draft");
    plan.draft = {draft.integer("bytes", 0, most), draft.integer("kvBlocks", 1, most)};
  }
  plan.reason = reader.text("reason", 128);
  plan.message = reader.text("message", 8192);
  const json& ranks = reader.list("ranks", max_ranks);
  const int64_t wanted = int64_t{plan.tensor} * plan.pipeline * plan.data;
  if (static_cast<int64_t>(ranks.size()) != wanted)
    JsonReader::fail(reader.path("ranks"), std::to_string(ranks.size()) + " ranks", std::to_string(wanted));
  for (size_t i = 0; i < ranks.size(); ++i)
    plan.ranks.push_back(rank_from({ranks[i], reader.path("ranks", i)}, ranks[i]));
  check_places(plan);
  if (reader.has("estimate")) plan.estimate = estimate_from(reader, value);
  const json none = json::array();
  const json& hardware_values =
      reader.has("hardware") ? reader.list("hardware", 32)
                             : none;  // estimates and hardware are informative; plans of earlier versions lack them
  for (size_t i = 0; i < hardware_values.size(); ++i) {
    const JsonReader one(hardware_values[i], reader.path("hardware", i));
    plan.hardware_values.push_back(
        {one.text("name", 64),
         one.text("unit", 32),
         {positive(hardware_values[i], "value", reader.path("hardware", i)), one.text("source", 256)}});
  }
  const json& rejected = reader.list("rejected", 256);
  for (size_t i = 0; i < rejected.size(); ++i) {
    const JsonReader one(rejected[i], reader.path("rejected", i));
    plan.rejected.push_back(
        {one.text("strategy", 64), one.text("reason", 64), one.text("message", 4096), std::nullopt});
    if (one.has("estimate")) plan.rejected.back().estimate = estimate_from(one, rejected[i]);
  }
  return plan;
}

}  // namespace pm
