// The heartbeat of collectives: every operation is one or more phases, and a rank enters phase p only when all have arrived at p - 1.
// With data of phase p in half p % 2 of a double buffer, one wait per phase is enough: who arrives at p has read everything of p - 1.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "worker/comm/abort_note.h"
#include "worker/comm/counts.h"
#include "worker/comm/door.h"

namespace pm::comm {

/// One rank's place in the group. All-zero is fresh. `arrived` and `tag` are written by the owner only.
struct Seat {
  alignas(64) std::atomic<uint64_t> arrived{0};
  std::array<std::atomic<uint64_t>, 2> tag{};   ///< what the rank calls in phases of either parity: operation and bytes
  Door door;                                    ///< where the owner sleeps
};

/// One rank's view of the phases of its group. One thread per rank.
class Phases {
 public:
  /// `first`: the world's number of the group's rank 0, for messages. `end_group(reason)` aborts the world; called when a deadline is missed.
  Phases(std::span<Seat> seats, AbortNote& note, int rank, int first, std::chrono::milliseconds deadline,
         std::function<void(const std::string&)> end_group);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(seats_.size()); }
  Door& door() { return seats_[rank_].door; }

  /// Begins the next phase; returns which half of the double buffer it may write. Ranks must agree on op and `bytes`.
  int enter(Operation op, int64_t bytes);
  /// Publishes what this rank wrote in the phase.
  void arrive();
  /// Waits until rank `peer` has arrived; throws std::logic_error when it called something else.
  void wait_for(int peer);
  void wait_for_all();

  /// Waits at this rank's door for any condition another rank makes true and knocks for.
  template <class Done>
  void wait_until(const char* op, int peer, Done&& done) {
    const bool met = wait(door(), spin_, after(deadline_), [&] { return done() || note_.aborted(); });
    if (!met) miss(op, peer);
    if (!done()) throw_aborted(op, first_ + rank_, note_);
  }

 private:
  [[noreturn]] void miss(const char* op, int peer);

  std::span<Seat> seats_;
  AbortNote& note_;
  int rank_, first_;
  std::chrono::milliseconds deadline_;
  Spin spin_;
  std::function<void(const std::string&)> end_group_;
  uint64_t phase_ = 0;
  Operation op_ = Operation::Barrier;
  uint64_t tag_ = 0;
};

}  // namespace pm::comm
