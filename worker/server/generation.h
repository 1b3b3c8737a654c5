// A request's way through the engine, seen from the HTTP thread that waits for it.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/request.h"

namespace pm::server {

/// Submits requests and collects their events. Its end cancels what still runs, so no way out of a handler leaks a slot.
class Generation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Arrival {
    size_t index = 0;              ///< of the request
    engine::Event event;           ///< tokens of a sequence that were not taken in between come in one
    Time time{}, last{};           ///< when the engine delivered the first and the last of them
    size_t events = 1;             ///< in how many events they came
  };

  /// Log-probabilities and tokens that may wait to be taken; a reader that lets more wait is too slow.
  static constexpr size_t kWaiting = 1 << 18;

  /// Submits all; when one is refused, cancels those before it and throws what the engine threw.
  Generation(engine::Engine& engine, std::vector<engine::Request> requests, size_t waiting = kWaiting);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// What has arrived, in order; waits up to `limit` for the first.
  std::vector<Arrival> wait(std::chrono::milliseconds limit);
  /// Ends one request early, all of its sequences; its further events do not arrive.
  void cancel(size_t index);
  /// True when every request has ended or was cancelled and its events were taken.
  bool done() const { return open_ == 0; }
  /// More waited than may; what came since is lost.
  bool overflowed() const;

 private:
  struct Mailbox;
  void close(size_t index);

  engine::Engine& engine_;
  std::shared_ptr<Mailbox> mailbox_;   ///< shared with the engine's callbacks, which may outlive us by a step
  std::vector<std::string> ids_;
  std::vector<int64_t> running_;       ///< sequences that have not ended, per request
  size_t open_ = 0;
};

}  // namespace pm::server
