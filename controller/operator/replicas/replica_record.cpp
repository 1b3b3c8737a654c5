// SPDX-License-Identifier: Apache-2.0
// Converts status.replicaStatuses[] and status.lastFailure to and from JSON.
#include <algorithm>

#include "controller/operator/api/object_text.h"
#include "controller/operator/replicas/replica_planner.h"

namespace pm::op {

namespace {

Json memory_json(const Memory& memory) {
  return {{"weights", memory.weights},
          {"kv", memory.kv},
          {"activations", memory.activations},
          {"communicator", memory.communicator},
          {"runtime", memory.runtime}};
}

Memory stored_memory(const Json& value) {
  const auto bytes = [&](const char* pointer) { return integer_at(value, pointer).value_or(0); };
  return {bytes("/weights"), bytes("/kv"), bytes("/activations"), bytes("/communicator"), bytes("/runtime")};
}

RankRecord rank_of(const Json& value) {
  RankRecord rank{static_cast<int>(integer_at(value, "/rank").value_or(0)), k8s::string_at(value, "/node"),
                  integer_at(value, "/total").value_or(0), stored_memory(at(value, "/predicted")), std::nullopt};
  if (at(value, "/measuredAtLoad").is_object()) rank.measured = stored_memory(at(value, "/measuredAtLoad"));
  return rank;
}

Json rank_json(const RankRecord& rank) {
  Json out{{"rank", rank.rank}, {"total", rank.total}, {"predicted", memory_json(rank.predicted)}};
  if (!rank.node.empty()) out["node"] = rank.node;
  if (rank.measured) out["measuredAtLoad"] = memory_json(*rank.measured);
  return out;
}

std::optional<ReplicaRecord> record_of(const Json& value) {
  const auto index = integer_at(value, "/index");
  if (!index || *index < 0 || *index > 1 << 20) return std::nullopt;
  ReplicaRecord record;
  record.index = static_cast<int>(*index);
  record.replica_generation = std::max<int64_t>(1, integer_at(value, "/replicaGeneration").value_or(1));
  record.created = bool_at(value, "/created");
  record.pod_hash = k8s::string_at(value, "/podHash");
  record.previous =
      std::clamp<int64_t>(integer_at(value, "/previousGeneration").value_or(0), 0, record.replica_generation - 1);
  if (const int64_t later = integer_at(value, "/abandonedGeneration").value_or(0); later > record.replica_generation)
    record.abandoned = later;
  record.surge_since = k8s::parse_time(k8s::string_at(value, "/surgeSince"));
  record.waits = std::clamp<int64_t>(integer_at(value, "/waits").value_or(0), 0, 1 << 20);
  record.wait_until = k8s::parse_time(k8s::string_at(value, "/waitUntil"));
  record.ready = bool_at(value, "/ready");
  record.reason = k8s::string_at(value, "/reason");
  record.restarts = integer_at(value, "/restarts").value_or(0);
  if (const Json& times = at(value, "/restartTimes"); times.is_array()) {
    for (const Json& time : times) {
      if (const auto parsed = time.is_string() ? k8s::parse_time(time.get<std::string>()) : std::nullopt)
        record.restart_times.push_back(*parsed);
    }
  }
  record.disruptions = std::max<int64_t>(0, integer_at(value, "/disruptions").value_or(0));
  record.disruption = k8s::string_at(value, "/lastDisruption");
  if (const Json& seconds = at(value, "/loadSeconds"); seconds.is_number()) record.load_seconds = seconds.get<double>();
  record.startup = startup_from_json(at(value, "/startupSeconds"));
  if (const Json& nodes = at(value, "/nodes"); nodes.is_array()) {
    for (const Json& node : nodes) record.nodes.push_back(node.is_string() ? node.get<std::string>() : "");
  }
  if (const Json& ranks = at(value, "/ranks"); ranks.is_array()) {
    for (const Json& rank : ranks) record.ranks.push_back(rank_of(rank));
  }
  return record;
}

}  // namespace

Json to_json(const ReplicaRecord& record) {
  Json out{{"index", record.index},       {"replicaGeneration", record.replica_generation},
           {"created", record.created},   {"podHash", record.pod_hash},
           {"ready", record.ready},       {"reason", record.reason},
           {"restarts", record.restarts}, {"nodes", record.nodes}};
  Json times = Json::array(), ranks = Json::array();
  for (const auto& time : record.restart_times) times.push_back(k8s::format_time(time));
  for (const RankRecord& rank : record.ranks) ranks.push_back(rank_json(rank));
  if (!times.empty()) out["restartTimes"] = std::move(times);
  if (!ranks.empty()) out["ranks"] = std::move(ranks);
  if (record.disruptions) out["disruptions"] = record.disruptions;
  if (!record.disruption.empty()) out["lastDisruption"] = clip(record.disruption, 500);
  if (record.previous) out["previousGeneration"] = record.previous;
  if (record.abandoned) out["abandonedGeneration"] = record.abandoned;
  if (record.surge_since) out["surgeSince"] = k8s::format_time(*record.surge_since);
  if (record.waits) out["waits"] = record.waits;
  if (record.wait_until) out["waitUntil"] = k8s::format_time(*record.wait_until);
  if (record.load_seconds) out["loadSeconds"] = *record.load_seconds;
  if (record.startup) out["startupSeconds"] = to_json(*record.startup);
  return out;
}

std::vector<ReplicaRecord> replica_records(const Json& model) {
  std::vector<ReplicaRecord> out;
  const Json& replicas = at(model, "/status/replicaStatuses");
  if (!replicas.is_array()) return out;
  for (const Json& replica : replicas) {
    if (auto record = record_of(replica)) out.push_back(std::move(*record));
  }
  std::sort(out.begin(), out.end(), [](const ReplicaRecord& a, const ReplicaRecord& b) { return a.index < b.index; });
  return out;
}

Json to_json(const FailureRecord& failure) {
  Json out{{"replica", failure.replica},
           {"replicaGeneration", failure.replica_generation},
           {"reason", failure.exit.reason},
           {"message", clip(failure.exit.message, 1000)},
           {"time", k8s::format_time(failure.time)}};
  if (failure.exit.rank) out["rank"] = *failure.exit.rank;
  if (failure.exit.code) out["exitCode"] = *failure.exit.code;
  return out;
}

}  // namespace pm::op
