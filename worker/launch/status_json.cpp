// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/status_json.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace pm::launch {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

int64_t count(const json& rank, const char* key) { return std::max<int64_t>(0, rank.value(key, int64_t{0})); }

std::string clipped(const json& object, const char* key, size_t most) { return object.value(key, "").substr(0, most); }

/// Returns the figures in their order on the wire.
std::array<comm::SharedValue*, 5> figures(comm::MeasuredMemory<comm::SharedValue>& memory) {
  return {&memory.weights, &memory.kv, &memory.activations, &memory.communicator, &memory.runtime};
}

}  // namespace

json rank_to_json(int r, comm::StatusTable& status_table, bool with_address) {
  comm::RankStatus& rank = status_table.rank(r);
  const int64_t beat = rank.heartbeat_ns;
  json measured = json::array();
  for (const comm::SharedValue* bytes : figures(rank.measured)) measured.push_back(bytes->load());
  json out{{"rank", r},
           {"state", rank.state.load()},
           {"age", beat == 0 ? int64_t{-1} : std::max<int64_t>(0, now_ns() - beat)},
           {"loadBytes", rank.load_bytes.load()},
           {"loadTotal", rank.load_total.load()},
           {"loadMilliseconds", rank.load_seconds_milli.load()},
           {"steps", rank.steps.load()},
           {"open", rank.open_requests.load()},
           {"measured", measured},
           {"port", rank.port.load()}};
  if (with_address && rank.port != 0)
    out["address"] = std::string(rank.address, strnlen(rank.address, sizeof rank.address));
  return out;
}

void apply_rank_json(const json& rank, comm::StatusTable& status_table, const std::string& address) {
  comm::RankStatus& to = status_table.rank(rank.at("rank").get<int>());
  const int64_t age = rank.value("age", int64_t{-1});
  to.heartbeat_ns = age < 0 ? 0 : now_ns() - std::min<int64_t>(age, 1'000'000'000'000);
  to.load_bytes = count(rank, "loadBytes");
  to.load_total = count(rank, "loadTotal");
  to.load_seconds_milli = count(rank, "loadMilliseconds");
  to.steps = count(rank, "steps");
  to.open_requests = count(rank, "open");
  const json& measured = rank.value("measured", json::array());
  const auto received = figures(to.measured);
  for (size_t i = 0; i < received.size() && i < measured.size(); ++i)
    *received[i] = std::max<int64_t>(0, measured[i].get<int64_t>());
  if (const int port = rank.value("port", 0); port > 0 && port < 65536 && to.port == 0 && !address.empty()) {
    const size_t length = std::min(address.size(), sizeof to.address - 1);
    std::memcpy(to.address, address.data(), length);
    to.port.store(port, std::memory_order_release);
  }
  const auto state = std::min<uint32_t>(rank.value("state", 0u), static_cast<uint32_t>(comm::RankState::Failed));
  if (to.failed == 0) to.state = state;
}

json failure_to_json(const Failure& failure) {
  return {{"rank", failure.rank},
          {"reason", failure.reason},
          {"message", failure.message},
          {"exitCode", failure.exit_code}};
}

Failure failure_from_json(const json& value, int ranks) {
  return {std::clamp(value.value("rank", 0), 0, ranks - 1),
          parse_reason(value.value("reason", "")).value_or(Reason::RankLost), clipped(value, "message", 511),
          std::clamp(value.value("exitCode", 5), 1, 255)};
}

}  // namespace pm::launch
