// Looks after what a device still has to do for a rank's collectives: their calls return before they are done, so that nobody else would notice one that never ends.
#pragma once
#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "worker/comm/nccl/link.h"
#include "worker/comm/nccl/streams.h"
#include "worker/comm/segment.h"

namespace pm::comm::nccl {

/// One per rank. A thread of its own looks every 20 ms: at the group's abort, which it passes on to the links; at errors of links; and at the oldest operation that is not done,
/// which has the deadline from when it became the oldest. Both of these end the group.
class Watch {
 public:
  Watch(std::shared_ptr<Segment>, at::Device, const Streams&, int rank, std::chrono::milliseconds deadline);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  Segment& segment() { return *segment_; }
  void add(Link&);
  void remove(Link&);
  /// The rank has put an operation into the current stream. In a stream that is captured nothing is noted, for nothing runs yet: what a graph repeats is noted as one, of 0 bytes.
  void began(const char* op, int64_t bytes);
  /// Links are aborted within 20 ms.
  void abort(const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;
  struct Started {
    c10::Event event;
    const char* op;
    int64_t bytes;
  };
  void run();
  bool look(std::unique_lock<std::mutex>&);
  void drop_done();

  const std::shared_ptr<Segment> segment_;
  const at::Device device_;
  const Streams streams_;
  const int rank_;
  const std::chrono::milliseconds deadline_;
  std::mutex mutex_;
  std::condition_variable woken_;
  std::vector<Link*> links_;
  std::deque<Started> started_;            ///< in the order of the stream
  std::vector<c10::Event> free_;           ///< events of operations that are done
  Clock::time_point oldest_since_{};
  bool aborting_ = false;                  ///< links are aborted, without the lock
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace pm::comm::nccl
