// What the ops port and the launcher read off the status board.
#pragma once
#include <chrono>
#include <mutex>
#include <optional>
#include <string>

#include "worker/comm/status.h"

namespace pm::launch {

using Time = std::chrono::steady_clock::time_point;

/// True when every rank is Ready with a heartbeat younger than 2 s, and the launcher, if there is one, runs.
bool ready(comm::StatusBoard& board, Time now);

/// Follows a counter: since when has it stood still?
class Stillness {
 public:
  /// How long `value` has been the same; zero at the first look, at a change, and while not `counting`.
  std::chrono::nanoseconds observe(int64_t value, bool counting, Time now);

 private:
  std::optional<int64_t> value_;
  Time since_{};
};

/// Answers /live. Remembers load progress between calls; may be called from several threads.
class Liveness {
 public:
  explicit Liveness(std::chrono::milliseconds load_stall = std::chrono::seconds(120), std::chrono::milliseconds stuck_launcher = std::chrono::seconds(10))
      : load_stall_(load_stall), stuck_launcher_(stuck_launcher) {}
  /// False only when load bytes of a loading group stand still for `load_stall`, or the launcher's loop does for `stuck_launcher`.
  bool live(comm::StatusBoard& board, Time now);

 private:
  const std::chrono::milliseconds load_stall_, stuck_launcher_;
  std::mutex mutex_;
  Stillness bytes_;
};

/// A failure that only the board shows: which rank, and in words what it did not do.
struct Stall {
  int rank = 0;
  std::string message;
};

/// Looks for frozen, stuck and stalled ranks; one per launcher. Pure but for what it remembers.
class Watchdog {
 public:
  struct Limits { std::chrono::milliseconds frozen, hang, load_stall; };
  /// Of a group over several nodes, whose boards show all ranks, each node's judges the hearts of its own, first, ..., first + count - 1, and rank 0's the steps. count 0: all.
  explicit Watchdog(Limits limits, int first = 0, int count = 0) : limits_(limits), first_(first), count_(count) {}
  /// nothing: all well. A gap of more than a second between calls means that this process was stopped too: then everybody gets a fresh start.
  std::optional<Stall> observe(comm::StatusBoard& board, Time now);

 private:
  Limits limits_;
  int first_, count_;
  Stillness steps_, bytes_;
  std::optional<Time> last_;
  Time forgiven_until_{};
};

}  // namespace pm::launch
