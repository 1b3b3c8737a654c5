// A request's way through the engine, seen from the HTTP thread that waits for it.
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "worker/engine/request.h"

namespace pm::server {

/// Submits sequences and collects their events. Its end cancels what still runs, so no way out of a handler leaks a slot.
class Generation {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Arrival {
    size_t index = 0;              ///< of the sequence
    engine::Event event;
    Time time{};                   ///< when the engine delivered it
  };

  /// Submits all; when one is refused, cancels those before it and throws what the engine threw.
  Generation(engine::Engine& engine, std::vector<engine::Request> requests);
  ~Generation();
  Generation(const Generation&) = delete;
  Generation& operator=(const Generation&) = delete;

  /// What has arrived, in order; waits up to `limit` for the first.
  std::vector<Arrival> wait(std::chrono::milliseconds limit);
  /// Ends one sequence early; its further events do not arrive.
  void cancel(size_t index);
  /// True when every sequence has ended or was cancelled and its events were taken.
  bool done() const { return open_ == 0; }

 private:
  struct Mailbox;
  void close(size_t index);

  engine::Engine& engine_;
  std::shared_ptr<Mailbox> mailbox_;   ///< shared with the engine's callbacks, which may outlive us by a step
  std::vector<std::string> ids_;
  std::vector<bool> closed_;
  size_t open_ = 0;
};

}  // namespace pm::server
