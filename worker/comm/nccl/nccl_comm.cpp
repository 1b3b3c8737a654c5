// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/nccl/nccl_comm.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "worker/base/error.h"
#include "worker/comm/wait/abort_note.h"

#include "base/log.h"

namespace pm::comm::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds call_lock_timeout{1000}, finalize_timeout{5000};
constexpr std::chrono::microseconds first_nap{20}, longest_nap{2000};
constexpr std::chrono::microseconds yield_time{200};  // NCCL enqueues an operation in some tens of microseconds

}  // namespace

ncclUniqueId new_id() {
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
    throw Error(Reason::CommunicatorAborted, std::string("NCCL cannot make a unique id for the ranks to join: ") +
                                                 ncclGetErrorString(result) + "; NCCL_DEBUG=INFO says more");
  return id;
}

NcclComm::NcclComm(const ncclUniqueId& id, Who who, at::Device device, Segment& segment, milliseconds deadline)
    : who_(std::move(who)), device_(device), segment_(segment), deadline_(deadline) {
  const c10::DeviceGuard here(device_);
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  const auto started = Clock::now();
  {
    const std::lock_guard lock(mutex_);
    const ncclResult_t result = ncclCommInitRankConfig(&comm_, who_.size, id, who_.rank, &config);
    if (result != ncclSuccess && result != ncclInProgress) fail("join", words(result));
  }
  try {
    await("join", deadline_);
  } catch (...) {
    abort();
    throw;
  }
  LOG(INFO) << "NCCL joined " << name() << " after " << std::chrono::duration<double>(Clock::now() - started).count()
            << " s";
}

NcclComm::~NcclComm() {
  const c10::DeviceGuard here(device_);
  try {
    if (!segment_.note().aborted()) {
      call("leave", [](ncclComm_t comm) { return ncclCommFinalize(comm); }, std::min(deadline_, finalize_timeout));
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr) ncclCommDestroy(comm_), comm_ = nullptr;
    }
  } catch (const std::exception& error) {
    LOG(WARNING) << error.what();
  }
  abort();
}

std::string NcclComm::words(ncclResult_t result) const {
  const char* more = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
  std::string text = std::string("NCCL: ") + ncclGetErrorString(result);
  if (more != nullptr && *more != 0) text += std::string(" (") + more + ")";
  return text + "; NCCL_DEBUG=INFO says more";
}

void NcclComm::fail(const char* op, const std::string& what) {
  const std::string text = std::string(op) + " of " + name() + ": " + what;
  segment_.abort(text);
  throw Error(Reason::CommunicatorAborted, text);
}

/// Requires the lock. Returns ncclInProgress for an aborted communicator.
ncclResult_t NcclComm::state() {
  ncclResult_t now = ncclSuccess;
  if (comm_ == nullptr) return ncclInProgress;
  const ncclResult_t result = ncclCommGetAsyncError(comm_, &now);
  return result == ncclSuccess ? now : result;
}

/// Waits until NCCL has started a call. A non-blocking communicator starts each in a thread of its own, also a
/// collective (ncclGroupEndInternal), so this wait is part of every collective outside of graphs. It first yields,
/// because a nap takes at least the timer slack of 50 us; then it naps, as joins take seconds.
void NcclComm::await(const char* op, milliseconds deadline) {
  const auto until = after(deadline), yield_until = Clock::now() + yield_time;
  auto nap = first_nap;
  for (;;) {
    std::string what;
    {
      const std::lock_guard lock(mutex_);
      if (segment_.note().aborted()) throw_aborted(op, who_.world, segment_.note());
      const ncclResult_t now = state();
      if (now == ncclSuccess) return;
      if (now != ncclInProgress) what = words(now);
    }
    if (!what.empty()) fail(op, what);
    const auto now = Clock::now();
    if (now > until) fail(op, "NCCL waited " + std::to_string(deadline.count()) + " ms for the others");
    if (now < yield_until) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(nap);
      nap = std::min(2 * nap, longest_nap);
    }
  }
}

void NcclComm::call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls) {
  call(op, calls, deadline_);
}

void NcclComm::call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls, milliseconds deadline) {
  ncclResult_t result = ncclSuccess;
  std::string what;
  {
    const std::lock_guard lock(mutex_);
    if (segment_.note().aborted() || comm_ == nullptr) throw_aborted(op, who_.world, segment_.note());
    result = calls(comm_);
    if (result != ncclSuccess && result != ncclInProgress) what = words(result);
  }
  if (!what.empty()) fail(op, what);
  if (result == ncclInProgress) await(op, deadline);
}

std::optional<std::string> NcclComm::error() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;  // the thread of the rank will see the error in its own call
  const ncclResult_t now = state();
  if (now == ncclSuccess || now == ncclInProgress) return std::nullopt;
  return name() + ": " + words(now);
}

void NcclComm::abort() {
  std::unique_lock lock(mutex_, call_lock_timeout);
  if (!lock.owns_lock()) {
    LOG(ERROR) << name() << " has not returned from an NCCL call, so that it cannot be aborted";
    return;
  }
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  lock.unlock();  // ncclCommAbort returns when graphs that hold its operations are gone, and the thread that drops them
                  // may need the lock
  if (comm == nullptr) return;
  c10::OptionalDeviceGuard here;  // the watchdog aborts in threads of its own
  try {
    here.reset_device(device_);
  } catch (const c10::Error& error) {
    LOG(WARNING) << name() << ": " << error.what_without_backtrace();
  }
  ncclCommAbort(comm);
}

}  // namespace pm::comm::nccl
