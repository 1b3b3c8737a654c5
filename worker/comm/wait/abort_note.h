// SPDX-License-Identifier: Apache-2.0
// Stores why a group ended: one note per group, written once and read by every waiter, in plain or shared memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace pm::comm {

/// The abort state and reason of a group. All-zero means "not aborted".
struct alignas(64) AbortNote {
  std::atomic<uint32_t> state{0};  ///< 0 fresh, 1 being written, 2 aborted
  char reason[500] = {};

  bool aborted() const { return state.load(std::memory_order_acquire) == 2; }
  /// Writes the reason unless there is one; afterwards aborted() is true. The caller then calls notify_all() on every
  /// event count of the group.
  void write(const std::string& why);
  std::string text() const;
};

/// Throws Error{CommunicatorAborted}: "all_reduce on rank 1: the group was aborted: WHY".
[[noreturn]] void throw_aborted(const char* op, int rank, const AbortNote& note);

}  // namespace pm::comm
