// SPDX-License-Identifier: Apache-2.0
// Exchanges several messages at once over as many connections, in both directions, so that no rank waits to be read
// before it reads.
#pragma once
#include <chrono>
#include <functional>
#include <span>
#include <string>

#include "worker/comm/tcp/socket.h"
#include "worker/comm/wait/abort_note.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {

/// One message to or from `peer`: a tag, then the body. The tag of an incoming message must equal `tag`, unless
/// any_tag.
struct Transfer {
  const Socket* socket = nullptr;
  int peer = 0;
  bool outgoing = false;
  uint64_t tag = 0;
  std::span<std::byte> body;  ///< an outgoing body is only read
  bool any_tag = false;       ///< any tag is accepted and is in `tag` afterwards
  size_t done = 0;            ///< bytes transferred, including the tag
  uint64_t received_tag = 0;
  bool finished() const { return done == sizeof tag + body.size(); }
};

/// The exchanges of one thread. A wait ends with Error{CommunicatorAborted} at the deadline, when a
/// connection ends, or when the group is aborted. The deadline starts again whenever bytes move.
class Exchange {
 public:
  /// `rank` and the peers of transfers are world ranks. `end_group` is called with the reason before a failure is
  /// thrown.
  Exchange(AbortNote& note, int rank, int waiters, std::chrono::milliseconds deadline,
           std::function<void(const std::string&)> end_group);
  /// Runs the transfers until all are finished. Throws std::logic_error when another tag comes than expected;
  /// `describe` writes a tag as text.
  void run(const char* op, std::span<Transfer> transfers, std::string (*describe)(uint64_t) = nullptr);
  /// Waits for data; returns false when none came within `timeout`.
  bool wait_for_data(const char* op, const Socket&, std::chrono::milliseconds timeout);

 private:
  bool advance(const char* op, Transfer&, std::string (*describe)(uint64_t));
  void sleep(std::span<const Transfer>, Clock::time_point deadline) const;
  [[noreturn]] void fail(const std::string& what);
  [[noreturn]] void throw_disconnected(const char* op, int peer);

  AbortNote& note_;
  const int rank_;
  const std::chrono::milliseconds deadline_;
  Spin spin_;
  const std::function<void(const std::string&)> end_group_;
};

}  // namespace pm::comm
