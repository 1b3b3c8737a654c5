// SPDX-License-Identifier: Apache-2.0
// Counts calls, bytes and seconds per operation of one communicator; metrics read them while the rank works.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/wait/event_count.h"

namespace pm::comm {

enum class Operation : uint8_t { AllReduce, AllGatherv, Gatherv, Broadcast, Send, Recv, Barrier };
constexpr int operation_count = 7;
const char* name(Operation);

class CollectiveCounters {
 public:
  /// Measures one call from construction to destruction.
  class Call {
   public:
    Call(CollectiveCounters& counts, Operation op, int64_t bytes)
        : counter_(counts.all_[static_cast<size_t>(op)]), bytes_(bytes), start_(Clock::now()) {}
    ~Call() {
      counter_.calls.fetch_add(1, std::memory_order_relaxed);
      counter_.bytes.fetch_add(bytes_, std::memory_order_relaxed);
      counter_.nanoseconds.fetch_add((Clock::now() - start_).count(), std::memory_order_relaxed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class CollectiveCounters;
    struct Counter {
      std::atomic<int64_t> calls{0}, bytes{0}, nanoseconds{0};
    };
    Counter& counter_;
    int64_t bytes_;
    Clock::time_point start_;
  };
  std::vector<Communicator::Count> read() const;

 private:
  std::array<Call::Counter, operation_count> all_;
};

}  // namespace pm::comm
