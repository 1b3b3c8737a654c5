// SPDX-License-Identifier: Apache-2.0
// Owns one NCCL communicator: joins, checks and ends it so that no call waits longer than its deadline.
#pragma once
#include <c10/core/Device.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "worker/comm/shared_memory/segment.h"

namespace pm::comm::nccl {

/// A non-blocking NCCL communicator (ncclConfig_t::blocking = 0). A call that NCCL has started but not finished is
/// polled until the deadline or an abort of the group. The thread of the rank makes calls; the watchdog thread looks
/// for errors and aborts. A mutex keeps their calls apart.
class NcclComm {
 public:
  struct Who {
    int rank = 0, size = 1;  ///< rank and size within this communicator
    int world = 0;           ///< world rank of this rank
    std::string with;        ///< the other ranks, for messages: "ranks 0 to 3"
  };
  /// Joins the other ranks that use the same id; all of them must call it. Throws Error{CommunicatorAborted}
  /// and ends the group at the deadline and when NCCL fails.
  NcclComm(const ncclUniqueId&, Who, at::Device, Segment&, std::chrono::milliseconds deadline);
  /// Finalizes the communicator, or aborts it when the group has been aborted.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Makes NCCL calls that belong together. `op` is for messages.
  void call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls);
  /// Returns the asynchronous error of the communicator as NCCL words it, if any.
  std::optional<std::string> error();
  /// Ends the operations of this communicator on the device of this rank; further calls throw. It does nothing when the
  /// thread of the rank has been inside an NCCL call for more than a second; the launcher then ends the process.
  void abort();

 private:
  ncclResult_t state();
  void call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls, std::chrono::milliseconds deadline);
  void await(const char* op, std::chrono::milliseconds deadline);
  [[noreturn]] void fail(const char* op, const std::string& what);
  std::string name() const {
    return "rank " + std::to_string(who_.world) + " on " + device_.str() + " with " + who_.with;
  }
  std::string words(ncclResult_t) const;

  const Who who_;
  const at::Device device_;
  Segment& segment_;
  const std::chrono::milliseconds deadline_;
  mutable std::timed_mutex mutex_;  ///< guards the communicator and every call with it
  ncclComm_t comm_ = nullptr;       ///< null once aborted
};

ncclUniqueId new_id();

}  // namespace pm::comm::nccl
