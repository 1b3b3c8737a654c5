// SPDX-License-Identifier: Apache-2.0
// Derives readiness, liveness and stalls of a group from its status table, for the admin server and the launcher.
#pragma once
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "worker/comm/membership/status_table.h"

namespace pm::launch {

using Time = std::chrono::steady_clock::time_point;

/// Returns true when every rank is Ready with a heartbeat younger than 2 s, and the launcher, if there is one, runs.
bool ready(comm::StatusTable& status_table, Time now);

/// Measures how long a counter has not changed.
class StallTimer {
 public:
  /// Returns how long `value` has been the same; zero at the first call, at a change, and while not `counting`.
  std::chrono::nanoseconds observe(int64_t value, bool counting, Time now);

 private:
  std::optional<int64_t> value_;
  Time since_{};
};

/// Answers /live. It remembers load progress between calls and may be called from several threads.
class Liveness {
 public:
  explicit Liveness(std::chrono::milliseconds load_stall = std::chrono::seconds(120),
                    std::chrono::milliseconds stuck_launcher = std::chrono::seconds(10))
      : load_stall_(load_stall), stuck_launcher_(stuck_launcher) {}
  /// Returns false only when the load bytes of a loading group do not change for `load_stall`, or the loop of the
  /// launcher does not run for `stuck_launcher`.
  bool live(comm::StatusTable& status_table, Time now);

 private:
  const std::chrono::milliseconds load_stall_, stuck_launcher_;
  std::mutex mutex_;
  StallTimer bytes_;
};

/// A failure that only the status table shows: the rank and a message that says what it did not do.
struct Stall {
  int rank = 0;
  std::string message;
};

/// Looks for frozen, stuck and stalled ranks; one per launcher. It has no side effects but its own state.
class Watchdog {
 public:
  struct Limits {
    std::chrono::milliseconds heartbeat_timeout, hang, load_stall;
  };
  /// In a group over several nodes every status table shows all ranks. The watchdog of each node checks the heartbeats
  /// of its ranks first, ..., first + count - 1, and that of rank 0 also checks the steps. count 0 means all ranks.
  explicit Watchdog(Limits limits, int first = 0, int count = 0) : limits_(limits), first_(first), count_(count) {}
  /// Returns the first stall, if any. A gap of more than a second between calls means that this process was stopped
  /// too; all ranks then get a fresh start.
  std::optional<Stall> observe(comm::StatusTable& status_table, Time now);

 private:
  Limits limits_;
  int first_, count_;
  StallTimer steps_, bytes_;
  std::optional<Time> last_;
  Time grace_until_{};
};

}  // namespace pm::launch
