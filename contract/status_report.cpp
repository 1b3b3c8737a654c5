// SPDX-License-Identifier: Apache-2.0
#include "contract/status_report.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace pm {

namespace {

using nlohmann::json;

constexpr int64_t max_bytes = int64_t{1} << 50;  // far above any device
constexpr size_t max_ranks = 1024;
constexpr double max_seconds = 1e6;

json to_json(const RankReport& rank) {
  json out{{"rank", rank.rank},
           {"state", rank.state},
           {"loadBytes", rank.load_bytes},
           {"loadTotal", rank.load_total},
           {"steps", rank.steps},
           {"heartbeatAgeSeconds", nullptr}};
  if (rank.load_seconds) out["loadSeconds"] = *rank.load_seconds;
  if (rank.heartbeat_age) out["heartbeatAgeSeconds"] = *rank.heartbeat_age;
  if (rank.measured) out["measured"] = pm::to_json(*rank.measured);
  if (rank.predicted) out["predicted"] = pm::to_json(*rank.predicted);
  if (rank.device) out["device"] = pm::to_json(*rank.device);
  if (rank.graphs) out["graphs"] = pm::to_json(*rank.graphs);
  if (rank.state == failed_state) {
    out["reason"] = rank.reason;
    out["message"] = rank.message;
  }
  return out;
}

/// Reads the fields of an untrusted object.
class Fields {
 public:
  explicit Fields(const json& object) : object_(object) {}

  const json* find(const char* key) const {
    const auto found = object_.is_object() ? object_.find(key) : object_.end();
    return object_.is_object() && found != object_.end() ? &*found : nullptr;
  }
  std::optional<int64_t> integer(const char* key) const {
    const json* value = find(key);
    if (!value || !value->is_number_integer()) return std::nullopt;
    if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return value->get<int64_t>();
  }
  int64_t bytes(const char* key) const { return std::clamp<int64_t>(integer(key).value_or(0), 0, max_bytes); }
  std::string text(const char* key) const {
    const json* value = find(key);
    return value && value->is_string() ? value->get<std::string>() : std::string();
  }
  std::optional<double> seconds(const char* key) const {
    const json* value = find(key);
    if (!value || !value->is_number() || !std::isfinite(value->get<double>())) return std::nullopt;
    return std::clamp(value->get<double>(), 0.0, max_seconds);
  }
  /// Returns the fields of an object; nullopt for anything else.
  std::optional<Fields> object(const char* key) const {
    const json* value = find(key);
    return value && value->is_object() ? std::optional(Fields(*value)) : std::nullopt;
  }

 private:
  const json& object_;
};

std::optional<Memory> memory_at(const Fields& rank, const char* key) {
  const auto memory = rank.object(key);
  if (!memory) return std::nullopt;
  return Memory{.weights = memory->bytes("weights"),
                .kv = memory->bytes("kv"),
                .activations = memory->bytes("activations"),
                .communicator = memory->bytes("communicator"),
                .runtime = memory->bytes("runtime")};
}

std::optional<RankReport> rank_from_json(const json& value) {
  const Fields fields(value);
  const auto rank = fields.integer("rank");
  if (!rank || *rank < 0 || *rank >= static_cast<int64_t>(max_ranks)) return std::nullopt;
  RankReport out{.rank = static_cast<int>(*rank),
                 .state = fields.text("state"),
                 .load_bytes = fields.bytes("loadBytes"),
                 .load_total = fields.bytes("loadTotal"),
                 .load_seconds = fields.seconds("loadSeconds"),
                 .steps = std::max<int64_t>(0, fields.integer("steps").value_or(0)),
                 .heartbeat_age = fields.seconds("heartbeatAgeSeconds"),
                 .measured = memory_at(fields, "measured"),
                 .predicted = memory_at(fields, "predicted"),
                 .reason = fields.text("reason"),
                 .message = fields.text("message")};
  if (const auto device = fields.object("device"))
    out.device = {device->bytes("total"), device->bytes("free"), device->bytes("reserved"), device->bytes("allocated"),
                  device->bytes("communicator")};
  if (const auto graphs = fields.object("graphs"))
    out.graphs = {graphs->bytes("captured"), graphs->bytes("replayed"), graphs->bytes("bytes")};
  return out;
}

}  // namespace

json to_json(const Memory& memory) {
  return {{"weights", memory.weights},           {"kv", memory.kv},           {"activations", memory.activations},
          {"communicator", memory.communicator}, {"runtime", memory.runtime}, {"total", memory.total()}};
}

json to_json(const DeviceMemory& memory) {
  return {{"total", memory.total},
          {"free", memory.free},
          {"reserved", memory.reserved},
          {"allocated", memory.allocated},
          {"communicator", memory.communicator}};
}

json to_json(const GraphUse& graphs) {
  return {{"captured", graphs.captured}, {"replayed", graphs.replayed}, {"bytes", graphs.bytes}};
}

json to_json(const StatusReport& report) {
  auto ranks = json::array();
  for (const RankReport& rank : report.ranks) ranks.push_back(to_json(rank));
  return {{"state", report.state},
          {"ready", report.ready},
          {"replicaGeneration", report.replica_generation},
          {"ranks", std::move(ranks)}};
}

std::optional<StatusReport> status_report_from_json(const json& value) {
  const Fields fields(value);
  const auto generation = fields.integer("replicaGeneration");
  const json* ranks = fields.find("ranks");
  if (!generation || !ranks || !ranks->is_array() || ranks->size() > max_ranks) return std::nullopt;
  const json* ready = fields.find("ready");
  StatusReport out{.state = fields.text("state"),
                   .ready = ready && ready->is_boolean() && ready->get<bool>(),
                   .replica_generation = *generation};
  for (const json& entry : *ranks) {
    if (auto rank = rank_from_json(entry)) out.ranks.push_back(*std::move(rank));
  }
  return out;
}

}  // namespace pm
