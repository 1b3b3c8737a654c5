// See memory_report.h.
#include "worker/server/memory_report.h"

#include <cstdio>
#include <cstring>

#include "worker/server/api_error.h"
#include "worker/server/percent.h"

namespace pm::server {

using comm::RankState;
using comm::RankStatus;

nlohmann::json memory_json(const Memory& memory) {
  return {{"weights", memory.weights}, {"kv", memory.kv}, {"activations", memory.activations},
          {"communicator", memory.communicator}, {"runtime", memory.runtime}, {"total", memory.total()}};
}

Memory measured(const RankStatus& rank) {
  const auto& m = rank.measured;
  return {m[0], m[1], m[2], m[3], m[4]};
}

std::string_view name_of(RankState state) {
  switch (state) {
    case RankState::Starting: return "Starting";
    case RankState::Loading: return "Loading";
    case RankState::Ready: return "Ready";
    case RankState::Draining: return "Draining";
    case RankState::Failed: return "Failed";
  }
  return "Unknown";
}

RankState state_of(const RankStatus& rank) {
  return rank.failed.load(std::memory_order_acquire) != 0 ? RankState::Failed : static_cast<RankState>(rank.state.load());
}

// The arrays are written before `failed` and not after, so they are read only once it is set.
std::string failure_reason(const RankStatus& rank) {
  return rank.failed.load(std::memory_order_acquire) == 1 ? std::string(rank.reason, strnlen(rank.reason, sizeof rank.reason)) : "";
}

std::string failure_message(const RankStatus& rank) {
  return rank.failed.load(std::memory_order_acquire) == 1 ? std::string(rank.message, strnlen(rank.message, sizeof rank.message)) : "";
}

double heartbeat_age(const RankStatus& rank, SteadyTime now) {
  const int64_t beat = rank.heartbeat_ns;
  if (beat == 0) return -1;
  return std::max(0.0, std::chrono::duration<double>(now.time_since_epoch()).count() - static_cast<double>(beat) * 1e-9);
}

nlohmann::json device_json(const comm::RankStatus& rank) {
  if (rank.device[0] == 0) return {};
  return {{"total", rank.device[0].load()}, {"free", rank.device[1].load()}, {"reserved", rank.device[2].load()}, {"allocated", rank.device[3].load()}, {"communicator", rank.device[4].load()}};
}

nlohmann::json graphs_json(const comm::RankStatus& rank) {
  if (rank.graphs[0] == 0) return {};
  return {{"recorded", rank.graphs[0].load()}, {"replayed", rank.graphs[1].load()}, {"bytes", rank.graphs[2].load()}};
}

nlohmann::json memory_report(const Plan& plan, comm::StatusBoard* board) {
  auto ranks = nlohmann::json::array();
  for (const auto& rank : plan.ranks) {
    nlohmann::json entry = {{"rank", rank.rank}, {"predicted", memory_json(rank.predicted)}};
    if (board && rank.rank < board->size()) {
      entry["measured"] = memory_json(measured(board->rank(rank.rank)));
      if (const auto device = device_json(board->rank(rank.rank)); !device.is_null()) entry["device"] = device;
      if (const auto graphs = graphs_json(board->rank(rank.rank)); !graphs.is_null()) entry["graphs"] = graphs;
    }
    ranks.push_back(std::move(entry));
  }
  return {{"ranks", ranks}};
}

std::string memory_table(const Plan& plan, comm::StatusBoard* board) {
  char line[160];
  std::snprintf(line, sizeof line, "%-5s %-10s %12s %12s %12s %12s %12s %12s\n", "rank", "MiB", "weights", "kv", "activations", "communicator", "runtime", "total");
  std::string table = line;
  const auto add = [&](int rank, const char* source, const Memory& memory) {
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    std::snprintf(line, sizeof line, "%-5d %-10s %12.3f %12.3f %12.3f %12.3f %12.3f %12.3f\n", rank, source, mib(memory.weights), mib(memory.kv),
                  mib(memory.activations), mib(memory.communicator), mib(memory.runtime), mib(memory.total()));
    table += line;
  };
  for (const auto& rank : plan.ranks) {
    add(rank.rank, "predicted", rank.predicted);
    if (!board || rank.rank >= board->size()) continue;
    comm::RankStatus& held = board->rank(rank.rank);
    add(rank.rank, "measured", measured(held));
    if (held.device[0] == 0) continue;
    const auto mib = [&](size_t figure) { return static_cast<double>(held.device[figure]) / (1 << 20); };
    std::snprintf(line, sizeof line, "%-5d device: %.1f MiB, %.1f free; %.1f reserved by this rank, of that %.1f in tensors; %.1f in communicators\n", rank.rank, mib(0), mib(1), mib(2), mib(3), mib(4));
    table += line;
  }
  return table;
}

http::Response memory_response(const http::Request& request, const Plan& plan, comm::StatusBoard* board) {
  bool text = request.header("accept").starts_with("text/plain");
  for (const auto& [name, value] : parse_query(request.query)) {
    if (name != "format" || (value != "text" && value != "json"))
      throw ApiError(400, "invalid_value", "/memory takes format=text or format=json", name.substr(0, 60));
    text = value == "text";
  }
  http::Response response;
  if (text) response.content_type = "text/plain; charset=utf-8";
  response.body = text ? memory_table(plan, board) : memory_report(plan, board).dump();
  return response;
}

RankState group_state(comm::StatusBoard& board) {
  int count[5] = {};
  for (int r = 0; r < board.size(); ++r) ++count[static_cast<int>(state_of(board.rank(r))) % 5];
  for (RankState state : {RankState::Failed, RankState::Draining})
    if (count[static_cast<int>(state)] > 0) return state;
  if (count[static_cast<int>(RankState::Ready)] == board.size()) return RankState::Ready;
  return count[static_cast<int>(RankState::Starting)] == board.size() ? RankState::Starting : RankState::Loading;
}

nlohmann::json status_report(const Plan& plan, comm::StatusBoard& board, int64_t incarnation, bool ready, SteadyTime now) {
  auto ranks = nlohmann::json::array();
  for (int r = 0; r < board.size(); ++r) {
    const auto& rank = board.rank(r);
    const double age = heartbeat_age(rank, now);
    nlohmann::json entry = {{"rank", r}, {"state", name_of(state_of(rank))}, {"loadBytes", rank.load_bytes.load()},
                            {"loadTotal", rank.load_total.load()}, {"loadSeconds", static_cast<double>(rank.load_seconds_milli.load()) * 1e-3},
                            {"steps", rank.steps.load()}, {"heartbeatAgeSeconds", nullptr}, {"measured", memory_json(measured(rank))}};
    if (age >= 0) entry["heartbeatAgeSeconds"] = age;
    if (const auto device = device_json(rank); !device.is_null()) entry["device"] = device;
    if (const auto graphs = graphs_json(rank); !graphs.is_null()) entry["graphs"] = graphs;
    for (const auto& planned : plan.ranks)
      if (planned.rank == r) entry["predicted"] = memory_json(planned.predicted);
    if (state_of(rank) == RankState::Failed) {
      entry["reason"] = failure_reason(rank);
      entry["message"] = failure_message(rank);
    }
    ranks.push_back(std::move(entry));
  }
  return {{"state", name_of(group_state(board))}, {"ready", ready}, {"incarnation", incarnation}, {"ranks", ranks}};
}

}  // namespace pm::server
