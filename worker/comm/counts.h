// Calls, bytes and seconds per operation of one communicator, read by metrics while the rank works.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/comm/door.h"

namespace pm::comm {

enum class Operation : uint8_t { AllReduce, AllGatherv, Gatherv, Broadcast, Send, Recv, Barrier };
constexpr int operation_count = 7;
const char* name(Operation);

class Counts {
 public:
  /// Measures one call from construction to destruction.
  class Call {
   public:
    Call(Counts& counts, Operation op, int64_t bytes) : one_(counts.all_[static_cast<size_t>(op)]), bytes_(bytes), start_(Clock::now()) {}
    ~Call() {
      one_.calls.fetch_add(1, std::memory_order_relaxed);
      one_.bytes.fetch_add(bytes_, std::memory_order_relaxed);
      one_.nanoseconds.fetch_add((Clock::now() - start_).count(), std::memory_order_relaxed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    friend class Counts;
    struct One { std::atomic<int64_t> calls{0}, bytes{0}, nanoseconds{0}; };
    One& one_;
    int64_t bytes_;
    Clock::time_point start_;
  };
  std::vector<Communicator::Count> read() const;

 private:
  std::array<Call::One, operation_count> all_;
};

}  // namespace pm::comm
