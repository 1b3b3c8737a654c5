// SPDX-License-Identifier: Apache-2.0
#include "worker/server/monitoring/memory_report.h"

#include <cstdio>
#include <cstring>

#include "worker/server/http/api_error.h"
#include "worker/server/http/percent_encoding.h"

namespace pm::server {

using comm::RankState;
using comm::RankStatus;

Memory measured(const RankStatus& rank) {
  const auto memory = comm::snapshot(rank.measured);
  return {.weights = memory.weights,
          .kv = memory.kv,
          .activations = memory.activations,
          .communicator = memory.communicator,
          .runtime = memory.runtime};
}

std::string_view name_of(RankState state) {
  switch (state) {
    case RankState::Starting:
      return "Starting";
    case RankState::Loading:
      return "Loading";
    case RankState::Ready:
      return ready_state;
    case RankState::Draining:
      return "Draining";
    case RankState::Failed:
      return failed_state;
  }
  return "Unknown";
}

RankState state_of(const RankStatus& rank) {
  return rank.failed.load(std::memory_order_acquire) != 0 ? RankState::Failed
                                                          : static_cast<RankState>(rank.state.load());
}

// The arrays are written before `failed` is set and never after, so they are read only once it is set.
std::string failure_reason(const RankStatus& rank) {
  return rank.failed.load(std::memory_order_acquire) == 1
             ? std::string(rank.reason, strnlen(rank.reason, sizeof rank.reason))
             : "";
}

std::string failure_message(const RankStatus& rank) {
  return rank.failed.load(std::memory_order_acquire) == 1
             ? std::string(rank.message, strnlen(rank.message, sizeof rank.message))
             : "";
}

double heartbeat_age(const RankStatus& rank, SteadyTime now) {
  const int64_t beat = rank.heartbeat_ns;
  if (beat == 0) return -1;
  return std::max(0.0,
                  std::chrono::duration<double>(now.time_since_epoch()).count() - static_cast<double>(beat) * 1e-9);
}

std::optional<DeviceMemory> device_memory(const comm::RankStatus& rank) {
  const auto device = comm::snapshot(rank.device);
  if (device.total == 0) return std::nullopt;
  return DeviceMemory{.total = device.total,
                      .free = device.free,
                      .reserved = device.reserved,
                      .allocated = device.allocated,
                      .communicator = device.communicators};
}

std::optional<GraphUse> graph_use(const comm::RankStatus& rank) {
  const auto graphs = comm::snapshot(rank.graphs);
  const bool failed = rank.capture_failed.load(std::memory_order_acquire) != 0;
  if (graphs.captured == 0 && !failed) return std::nullopt;
  return GraphUse{.captured = graphs.captured,
                  .replayed = graphs.replayed,
                  .bytes = graphs.bytes,
                  .capture_failure = failed ? rank.capture_failure : ""};
}

nlohmann::json memory_report(const Plan& plan, comm::StatusTable* status_table) {
  auto ranks = nlohmann::json::array();
  for (const auto& rank : plan.ranks) {
    nlohmann::json entry = {{"rank", rank.rank}, {"predicted", to_json(rank.predicted)}};
    if (status_table && rank.rank < status_table->size()) {
      entry["measured"] = to_json(measured(status_table->rank(rank.rank)));
      if (const auto device = device_memory(status_table->rank(rank.rank))) entry["device"] = to_json(*device);
      if (const auto graphs = graph_use(status_table->rank(rank.rank))) entry["graphs"] = to_json(*graphs);
    }
    ranks.push_back(std::move(entry));
  }
  return {{"ranks", ranks}};
}

std::string memory_table(const Plan& plan, comm::StatusTable* status_table) {
  char line[160];
  std::snprintf(line, sizeof line, "%-5s %-10s %12s %12s %12s %12s %12s %12s\n", "rank", "MiB", "weights", "kv",
                "activations", "communicator", "runtime", "total");
  std::string table = line;
  const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  const auto add = [&](int rank, const char* source, const Memory& memory) {
    std::snprintf(line, sizeof line, "%-5d %-10s %12.3f %12.3f %12.3f %12.3f %12.3f %12.3f\n", rank, source,
                  mib(memory.weights), mib(memory.kv), mib(memory.activations), mib(memory.communicator),
                  mib(memory.runtime), mib(memory.total()));
    table += line;
  };
  for (const auto& rank : plan.ranks) {
    add(rank.rank, "predicted", rank.predicted);
    if (!status_table || rank.rank >= status_table->size()) continue;
    comm::RankStatus& held = status_table->rank(rank.rank);
    add(rank.rank, "measured", measured(held));
    const auto device = comm::snapshot(held.device);
    if (device.total == 0) continue;
    std::snprintf(line, sizeof line,
                  "%-5d device: %.1f MiB, %.1f free; %.1f reserved by this rank, of that %.1f in tensors; %.1f in "
                  "communicators\n",
                  rank.rank, mib(device.total), mib(device.free), mib(device.reserved), mib(device.allocated),
                  mib(device.communicators));
    table += line;
  }
  return table;
}

http::Response memory_response(const http::Request& request, const Plan& plan, comm::StatusTable* status_table) {
  bool text = request.header("accept").starts_with("text/plain");
  for (const auto& [name, value] : parse_query(request.query)) {
    if (name != "format" || (value != "text" && value != "json"))
      throw ApiError(400, "invalid_value", "invalid query parameter; /memory accepts format=text or format=json",
                     name.substr(0, 60));
    text = value == "text";
  }
  http::Response response;
  if (text) response.content_type = "text/plain; charset=utf-8";
  response.body = text ? memory_table(plan, status_table) : memory_report(plan, status_table).dump();
  return response;
}

RankState group_state(comm::StatusTable& status_table) {
  int count[5] = {};
  for (int r = 0; r < status_table.size(); ++r) ++count[static_cast<int>(state_of(status_table.rank(r))) % 5];
  for (RankState state : {RankState::Failed, RankState::Draining})
    if (count[static_cast<int>(state)] > 0) return state;
  if (count[static_cast<int>(RankState::Ready)] == status_table.size()) return RankState::Ready;
  return count[static_cast<int>(RankState::Starting)] == status_table.size() ? RankState::Starting : RankState::Loading;
}

StatusReport status_report(const Plan& plan, comm::StatusTable& status_table, int64_t replica_generation, bool ready,
                           SteadyTime now) {
  StatusReport report{.state = std::string(name_of(group_state(status_table))),
                      .ready = ready,
                      .replica_generation = replica_generation};
  for (int r = 0; r < status_table.size(); ++r) {
    const auto& rank = status_table.rank(r);
    RankReport& entry =
        report.ranks.emplace_back(RankReport{.rank = r,
                                             .state = std::string(name_of(state_of(rank))),
                                             .load_bytes = rank.load_bytes,
                                             .load_total = rank.load_total,
                                             .load_seconds = static_cast<double>(rank.load_seconds_milli) * 1e-3,
                                             .steps = rank.steps,
                                             .measured = measured(rank),
                                             .device = device_memory(rank),
                                             .graphs = graph_use(rank),
                                             .reason = failure_reason(rank),
                                             .message = failure_message(rank)});
    if (const double age = heartbeat_age(rank, now); age >= 0) entry.heartbeat_age = age;
    for (const auto& planned : plan.ranks)
      if (planned.rank == r) entry.predicted = planned.predicted;
  }
  return report;
}

}  // namespace pm::server
