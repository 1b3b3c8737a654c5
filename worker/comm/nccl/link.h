// One communicator of NCCL: joined, watched and ended so that no call waits longer than its deadline.
#pragma once
#include <c10/core/Device.h>
#include <nccl.h>

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "worker/comm/segment.h"

namespace pm::comm::nccl {

/// Non-blocking (ncclConfig_t::blocking = 0): a call that NCCL has begun but not ended is polled for, until the deadline or an abort of the group. The rank's thread makes
/// calls; the watch's thread looks for errors and aborts. Their calls exclude each other.
class Link {
 public:
  struct Who {
    int rank = 0, size = 1;        ///< within the link
    int world = 0;                 ///< this rank's number in the group
    std::string with;              ///< the others, for messages: "ranks 0 to 3"
  };
  /// Joins the others with the same id; to be called by all of them. Throws Error{RankLost, CommunicatorAborted} at the deadline and when NCCL refuses, and ends the group.
  Link(const ncclUniqueId&, Who, at::Device, Segment&, std::chrono::milliseconds deadline);
  /// Leaves in peace where the group does, else as abort().
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  /// Makes calls of NCCL that belong together. `op`: for messages.
  void call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls);
  /// What has gone wrong since, in NCCL's words.
  std::optional<std::string> error();
  /// Ends what the device still does for this communicator; further calls throw. Of this rank only. When the rank's thread has been inside a call of NCCL for more than a second
  /// it does nothing: then the launcher ends the process.
  void abort();

 private:
  ncclResult_t state();
  void call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls, std::chrono::milliseconds deadline);
  void await(const char* op, std::chrono::milliseconds deadline);
  [[noreturn]] void fail(const char* op, const std::string& what);
  std::string name() const { return "rank " + std::to_string(who_.world) + " on " + device_.str() + " with " + who_.with; }
  std::string words(ncclResult_t) const;

  const Who who_;
  const at::Device device_;
  Segment& segment_;
  const std::chrono::milliseconds deadline_;
  mutable std::timed_mutex mutex_;   ///< guards the communicator and every call with it
  ncclComm_t comm_ = nullptr;        ///< null: aborted
};

ncclUniqueId new_id();

}  // namespace pm::comm::nccl
