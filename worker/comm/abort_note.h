// Why a group ended: one note per group, written once, read by every waiter. Lives in plain or shared memory.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace pm::comm {

/// All-zero is "not aborted".
struct alignas(64) AbortNote {
  std::atomic<uint32_t> state{0};   ///< 0 fresh, 1 being written, 2 aborted
  char reason[500] = {};

  bool aborted() const { return state.load(std::memory_order_acquire) == 2; }
  /// Writes the reason unless one is there already; afterwards aborted(). The caller then alarms every door of the group.
  void write(const std::string& why);
  std::string text() const;
};

/// Error{RankLost, CommunicatorAborted}: "all_reduce on rank 1: the group was aborted: WHY".
[[noreturn]] void throw_aborted(const char* op, int rank, const AbortNote& note);

}  // namespace pm::comm
