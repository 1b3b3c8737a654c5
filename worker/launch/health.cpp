// SPDX-License-Identifier: Apache-2.0
#include "worker/launch/health.h"

#include <algorithm>

namespace pm::launch {
namespace {

using comm::RankState;
using std::chrono::nanoseconds;

RankState state_of(comm::StatusTable& status_table, int r) {
  return static_cast<RankState>(status_table.rank(r).state.load());
}

int64_t load_bytes(comm::StatusTable& status_table) {
  int64_t sum = 0;
  for (int r = 0; r < status_table.size(); ++r) sum += status_table.rank(r).load_bytes.load();
  return sum;
}

/// Returns true while a rank loads. A rank that waits in Starting or Ready for a loading one does not count.
bool loading(comm::StatusTable& status_table) {
  for (int r = 0; r < status_table.size(); ++r)
    if (state_of(status_table, r) == RankState::Loading) return true;
  return false;
}

nanoseconds since(int64_t ns, Time now) { return now.time_since_epoch() - nanoseconds(ns); }

std::string seconds(nanoseconds span) {
  return std::to_string(std::chrono::duration_cast<std::chrono::seconds>(span).count()) + " s";
}

/// Returns the loading rank that has read the smallest fraction of its bytes.
int slowest_loader(comm::StatusTable& status_table) {
  int worst = 0;
  double least = 2;
  for (int r = 0; r < status_table.size(); ++r) {
    if (state_of(status_table, r) != RankState::Loading) continue;
    const double part = static_cast<double>(status_table.rank(r).load_bytes) /
                        static_cast<double>(std::max<int64_t>(1, status_table.rank(r).load_total));
    if (part < least) worst = r, least = part;
  }
  return worst;
}

int slowest_stepper(comm::StatusTable& status_table) {
  int worst = 0;
  for (int r = 1; r < status_table.size(); ++r)
    if (status_table.rank(r).steps.load() < status_table.rank(worst).steps.load()) worst = r;
  return worst;
}

}  // namespace

bool ready(comm::StatusTable& status_table, Time now) {
  constexpr auto fresh = std::chrono::seconds(2);
  if (const int64_t ns = status_table.launcher_heartbeat_ns(); ns != 0 && since(ns, now) >= fresh) return false;
  for (int r = 0; r < status_table.size(); ++r)
    if (state_of(status_table, r) != RankState::Ready || since(status_table.rank(r).heartbeat_ns, now) >= fresh)
      return false;
  return true;
}

nanoseconds StallTimer::observe(int64_t value, bool counting, Time now) {
  if (!counting) {
    value_.reset();  // counting starts again
    return {};
  }
  if (value_ != value) since_ = now;
  value_ = value;
  return now - since_;
}

bool Liveness::live(comm::StatusTable& status_table, Time now) {
  const std::lock_guard lock(mutex_);
  if (const int64_t ns = status_table.launcher_heartbeat_ns(); ns != 0 && since(ns, now) >= stuck_launcher_)
    return false;
  return bytes_.observe(load_bytes(status_table), loading(status_table), now) < load_stall_;
}

std::optional<Stall> Watchdog::observe(comm::StatusTable& status_table, Time now) {
  if (last_ && now - *last_ > std::chrono::seconds(1))
    grace_until_ = now + limits_.heartbeat_timeout, steps_ = {}, bytes_ = {};
  last_ = now;
  const int64_t steps = status_table.rank(0).steps;
  const auto stuck = steps_.observe(steps, first_ == 0 && status_table.rank(0).open_requests > 0, now);
  const auto starved = bytes_.observe(load_bytes(status_table), loading(status_table), now);
  if (now < grace_until_) return std::nullopt;
  for (int r = first_; r < (count_ == 0 ? status_table.size() : first_ + count_); ++r) {
    const int64_t beat = status_table.rank(r).heartbeat_ns;
    if (beat != 0 && status_table.rank(r).failed == 0 && since(beat, now) > limits_.heartbeat_timeout)
      return Stall{r, "rank " + std::to_string(r) + " is frozen: no heartbeat for " + seconds(since(beat, now))};
  }
  if (stuck > limits_.hang) {
    const int r = slowest_stepper(status_table);
    return Stall{r, "no step for " + seconds(stuck) + " with " + std::to_string(status_table.rank(0).open_requests) +
                        " open requests; rank " + std::to_string(r) + " has done the fewest, " +
                        std::to_string(status_table.rank(r).steps) + ", rank 0 " + std::to_string(steps)};
  }
  if (starved > limits_.load_stall) {
    const int r = slowest_loader(status_table);
    return Stall{r, "loading stands still for " + seconds(starved) + ": rank " + std::to_string(r) + " has read " +
                        std::to_string(status_table.rank(r).load_bytes) + " of " +
                        std::to_string(status_table.rank(r).load_total) + " bytes"};
  }
  return std::nullopt;
}

}  // namespace pm::launch
