// See told.h.
#include "worker/launch/told.h"

#include <algorithm>
#include <cstring>

namespace pm::launch {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

int64_t now_ns() { return std::chrono::nanoseconds(Clock::now().time_since_epoch()).count(); }

int64_t count(const json& rank, const char* key) { return std::max<int64_t>(0, rank.value(key, int64_t{0})); }

std::string clipped(const json& object, const char* key, size_t most) { return object.value(key, "").substr(0, most); }

}  // namespace

json told(int r, comm::StatusBoard& board, bool with_address) {
  comm::RankStatus& rank = board.rank(r);
  const int64_t beat = rank.heartbeat_ns;
  json measured = json::array();
  for (const auto& bytes : rank.measured) measured.push_back(bytes.load());
  json out{{"rank", r}, {"state", rank.state.load()}, {"age", beat == 0 ? int64_t{-1} : std::max<int64_t>(0, now_ns() - beat)}, {"loadBytes", rank.load_bytes.load()},
           {"loadTotal", rank.load_total.load()}, {"loadMilliseconds", rank.load_seconds_milli.load()}, {"steps", rank.steps.load()}, {"open", rank.open_requests.load()},
           {"measured", measured}, {"port", rank.port.load()}};
  if (with_address && rank.port != 0) out["address"] = std::string(rank.address, strnlen(rank.address, sizeof rank.address));
  return out;
}

void mirror(const json& rank, comm::StatusBoard& board, const std::string& address) {
  comm::RankStatus& to = board.rank(rank.at("rank").get<int>());
  const int64_t age = rank.value("age", int64_t{-1});
  to.heartbeat_ns = age < 0 ? 0 : now_ns() - std::min<int64_t>(age, 1'000'000'000'000);
  to.load_bytes = count(rank, "loadBytes");
  to.load_total = count(rank, "loadTotal");
  to.load_seconds_milli = count(rank, "loadMilliseconds");
  to.steps = count(rank, "steps");
  to.open_requests = count(rank, "open");
  const json& measured = rank.value("measured", json::array());
  for (size_t i = 0; i < to.measured.size() && i < measured.size(); ++i) to.measured[i] = std::max<int64_t>(0, measured[i].get<int64_t>());
  if (const int port = rank.value("port", 0); port > 0 && port < 65536 && to.port == 0 && !address.empty()) {
    const size_t length = std::min(address.size(), sizeof to.address - 1);
    std::memcpy(to.address, address.data(), length);
    to.port.store(port, std::memory_order_release);
  }
  const auto state = std::min<uint32_t>(rank.value("state", 0u), static_cast<uint32_t>(comm::RankState::Failed));
  if (to.failed == 0) to.state = state;
}

json told(const Failure& failure) { return {{"rank", failure.rank}, {"reason", failure.reason}, {"message", failure.message}, {"exitCode", failure.exit_code}}; }

Failure failure_from(const json& value, int ranks) {
  return {std::clamp(value.value("rank", 0), 0, ranks - 1), clipped(value, "reason", 63), clipped(value, "message", 511), std::clamp(value.value("exitCode", 5), 1, 255)};
}

}  // namespace pm::launch
