// SPDX-License-Identifier: Apache-2.0
// Runs requests in the engine on behalf of the HTTP thread that waits for them.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/engine.h"

namespace pm::server {

/// Submits requests and collects their events. The destructor cancels requests that still run, so a handler that exits
/// early leaks no slot.
class Generation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Arrival {
    size_t index = 0;     ///< of the request
    engine::Event event;  ///< tokens of a sequence that wait to be read are merged into one event
    Time time{}, last{};  ///< when the engine delivered the first and the last merged event
    size_t events = 1;    ///< number of merged events
  };

  /// Default limit on tokens and alternatives that wait to be read. A reader that exceeds it is too slow.
  static constexpr size_t pending_limit = 1 << 18;

  /// Submits all requests. When the engine refuses one, the requests before it are cancelled and its exception is
  /// rethrown.
  Generation(engine::Engine& engine, std::vector<engine::Request> requests, size_t max_pending = pending_limit);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// Returns the arrivals in order; waits up to `limit` for the first.
  std::vector<Arrival> wait(std::chrono::milliseconds limit);
  /// Cancels one request with all its sequences; none of its later events arrive.
  void cancel(size_t index);
  /// True when every request has ended or was cancelled and its events were read.
  bool done() const { return open_ == 0; }
  /// True when the limit on waiting tokens was exceeded; later tokens are lost.
  bool overflowed() const;

 private:
  struct Mailbox;
  void close(size_t index);

  engine::Engine& engine_;
  std::shared_ptr<Mailbox> mailbox_;  ///< shared with the engine's callbacks, which may outlive this object by a step
  std::vector<std::string> ids_;
  std::vector<int64_t> running_;  ///< sequences that have not ended, per request
  size_t open_ = 0;
};

}  // namespace pm::server
