// SPDX-License-Identifier: Apache-2.0
#include "contract/status_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "contract/untrusted_object.h"

namespace pm {

namespace {

using nlohmann::json;

constexpr size_t max_ranks = 1024;

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

std::optional<Memory> memory_at(const UntrustedObject& rank, const char* key) {
  const auto memory = rank.object(key);
  if (!memory) return std::nullopt;
  return Memory{.weights = memory->bytes("weights"),
                .kv = memory->bytes("kv"),
                .activations = memory->bytes("activations"),
                .communicator = memory->bytes("communicator"),
                .runtime = memory->bytes("runtime")};
}

std::optional<RankReport> rank_from_json(const json& value) {
  const UntrustedObject fields(value);
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
    out.graphs = {graphs->bytes("captured"), graphs->bytes("replayed"), graphs->bytes("bytes"),
                  graphs->text("captureFailure")};
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
  json out{{"captured", graphs.captured}, {"replayed", graphs.replayed}, {"bytes", graphs.bytes}};
  if (!graphs.capture_failure.empty()) out["captureFailure"] = graphs.capture_failure;
  return out;
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
  const UntrustedObject fields(value);
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
