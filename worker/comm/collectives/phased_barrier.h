// SPDX-License-Identifier: Apache-2.0
// Synchronizes collectives: every operation consists of one or more phases, and a rank enters phase p only when all
// have arrived at p - 1. The data of phase p lies in half p % 2 of a double buffer, so one wait per phase is enough: a
// rank that arrives at p has read everything of p - 1.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>

#include "worker/comm/collectives/collective_counters.h"
#include "worker/comm/wait/abort_note.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {

/// The slot of one rank. All-zero is fresh. Only the owner writes `arrived` and `tag`.
struct BarrierSlot {
  alignas(64) std::atomic<uint64_t> arrived{0};
  std::array<std::atomic<uint64_t>, 2> tag{};  ///< operation and bytes that the rank calls in phases of either parity
  EventCount event;                            ///< at which the owner sleeps
};

/// The barrier of one rank of the group. Used by one thread per rank.
class PhasedBarrier {
 public:
  /// `first` is the world rank of rank 0 of the group, for messages. `end_group(reason)` aborts the world when a
  /// deadline is missed.
  PhasedBarrier(std::span<BarrierSlot> slots, AbortNote& note, int rank, int first, std::chrono::milliseconds deadline,
                std::function<void(const std::string&)> end_group);

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(slots_.size()); }
  EventCount& event() { return slots_[rank_].event; }

  /// Starts the next phase and returns the half of the double buffer to write. Ranks must agree on `op` and `bytes`.
  int enter(Operation op, int64_t bytes);
  /// Publishes what this rank wrote in the phase.
  void arrive();
  /// Waits until rank `peer` has arrived; throws std::logic_error when it called another operation.
  void wait_for(int peer);
  void wait_for_all();

  /// Waits at the event count of this rank for any condition that another rank makes true and notifies.
  template <class Done>
  void wait_until(const char* op, int peer, Done&& done) {
    const bool met = wait(event(), spin_, after(deadline_), [&] { return done() || note_.aborted(); });
    if (!met) miss(op, peer);
    if (!done()) throw_aborted(op, first_ + rank_, note_);
  }

 private:
  [[noreturn]] void miss(const char* op, int peer);

  std::span<BarrierSlot> slots_;
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
