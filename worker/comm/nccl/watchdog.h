// SPDX-License-Identifier: Apache-2.0
// Watches the operations that a device still has to do for the collectives of a rank. Their calls return before they
// are done, so that no other thread would notice one that never ends.
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

#include "worker/comm/nccl/nccl_comm.h"
#include "worker/comm/nccl/streams.h"
#include "worker/comm/shared_memory/segment.h"

namespace pm::comm::nccl {

/// The watchdog of one rank. Its thread looks every 20 ms at the abort note of the group, which it passes on to the
/// NCCL communicators; at their errors; and at the oldest unfinished operation, which has the deadline from when it
/// became the oldest. An error and a missed deadline end the group.
class Watchdog {
 public:
  Watchdog(std::shared_ptr<Segment>, at::Device, const Streams&, int rank, std::chrono::milliseconds deadline);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  Segment& segment() { return *segment_; }
  void add(NcclComm&);
  void remove(NcclComm&);
  /// Records that the rank has enqueued an operation in the current stream. In a stream that is being captured it
  /// records nothing, because nothing runs yet; a graph replay is recorded as one operation of 0 bytes.
  void enqueued(const char* op, int64_t bytes);
  /// Aborts the group; its NCCL communicators are aborted within 20 ms.
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
  std::vector<NcclComm*> comms_;
  std::deque<Started> started_;   ///< in stream order
  std::vector<c10::Event> free_;  ///< events of finished operations, for reuse
  Clock::time_point oldest_since_{};
  bool aborting_ = false;  ///< communicators are being aborted without the lock
  bool leaving_ = false;
  std::thread thread_;
};

}  // namespace pm::comm::nccl
