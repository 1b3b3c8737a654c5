// SPDX-License-Identifier: Apache-2.0
// Implements a byte ring between one writer and one reader, in plain or shared memory. It is FIFO; messages longer than
// the ring are passed in pieces.
#pragma once
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "worker/comm/wait/abort_note.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {

/// The state of a ring. All-zero is an empty ring. Counts are bytes since the start; position = count % capacity.
struct RingState {
  alignas(64) std::atomic<uint64_t> written{0};
  alignas(64) std::atomic<uint64_t> read{0};
  EventCount reader, writer;
};

/// One end of a ring. Waits end with Error{CommunicatorAborted} at the deadline or when the group is aborted.
class Ring {
 public:
  /// Names the operation and the two ranks in messages of failed waits.
  struct Who {
    const char* op;
    int rank, peer;
  };
  /// `end_group` is called with the reason when a deadline is missed.
  Ring(RingState& state, std::span<std::byte> data, AbortNote& note, Who who, std::chrono::milliseconds deadline,
       std::function<void(const std::string&)> end_group);

  /// Writes all bytes. The deadline starts again whenever the reader takes some.
  void write(std::span<const std::byte> bytes);
  /// Reads exactly as many bytes as fit into `bytes`.
  void read(std::span<std::byte> bytes);
  /// Waits for data at the reader's end; returns false when none came within `timeout`.
  bool wait_for_data(std::chrono::milliseconds timeout);

 private:
  [[noreturn]] void miss();

  RingState& state_;
  std::span<std::byte> data_;
  AbortNote& note_;
  Who who_;
  std::chrono::milliseconds deadline_;
  Spin spin_;
  std::function<void(const std::string&)> end_group_;
};

}  // namespace pm::comm
