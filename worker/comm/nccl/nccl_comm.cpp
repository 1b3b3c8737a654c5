// See link.h.
#include "worker/comm/nccl/link.h"

#include <c10/core/DeviceGuard.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "worker/base/error.h"
#include "worker/comm/abort_note.h"
#include "worker/base/log.h"

namespace pm::comm::nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds patience_with_a_call{1000}, farewell{5000};
constexpr std::chrono::microseconds first_nap{20}, longest_nap{2000};

}  // namespace

ncclUniqueId new_id() {
  ncclUniqueId id;
  if (const ncclResult_t result = ncclGetUniqueId(&id); result != ncclSuccess)
    throw Error(ErrorKind::RankLost, "CommunicatorAborted", std::string("NCCL has no address for ranks to meet at: ") + ncclGetErrorString(result) + "; NCCL_DEBUG=INFO says more");
  return id;
}

Link::Link(const ncclUniqueId& id, Who who, at::Device device, Segment& segment, milliseconds deadline)
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
  LOG(INFO) << "NCCL joined " << name() << " after " << std::chrono::duration<double>(Clock::now() - started).count() << " s";
}

Link::~Link() {
  const c10::DeviceGuard here(device_);
  try {
    if (!segment_.note().aborted()) {
      call("leave", [](ncclComm_t comm) { return ncclCommFinalize(comm); }, std::min(deadline_, farewell));
      const std::lock_guard lock(mutex_);
      if (comm_ != nullptr) ncclCommDestroy(comm_), comm_ = nullptr;
    }
  } catch (const std::exception& error) {
    LOG(WARNING) << error.what();
  }
  abort();
}

std::string Link::words(ncclResult_t result) const {
  const char* more = comm_ == nullptr ? nullptr : ncclGetLastError(comm_);
  std::string text = std::string("NCCL: ") + ncclGetErrorString(result);
  if (more != nullptr && *more != 0) text += std::string(" (") + more + ")";
  return text + "; NCCL_DEBUG=INFO says more";
}

void Link::fail(const char* op, const std::string& what) {
  const std::string text = std::string(op) + " of " + name() + ": " + what;
  segment_.abort(text);
  throw Error(ErrorKind::RankLost, "CommunicatorAborted", text);
}

/// With the lock. Aborted links are in the state they were in.
ncclResult_t Link::state() {
  ncclResult_t now = ncclSuccess;
  if (comm_ == nullptr) return ncclInProgress;
  const ncclResult_t asked = ncclCommGetAsyncError(comm_, &now);
  return asked == ncclSuccess ? now : asked;
}

void Link::await(const char* op, milliseconds deadline) {
  const auto until = after(deadline);
  for (auto nap = first_nap;; nap = std::min(2 * nap, longest_nap)) {
    std::string what;
    {
      const std::lock_guard lock(mutex_);
      if (segment_.note().aborted()) throw_aborted(op, who_.world, segment_.note());
      const ncclResult_t now = state();
      if (now == ncclSuccess) return;
      if (now != ncclInProgress) what = words(now);
    }
    if (!what.empty()) fail(op, what);
    if (Clock::now() > until) fail(op, "NCCL waited " + std::to_string(deadline.count()) + " ms for the others");
    std::this_thread::sleep_for(nap);
  }
}

void Link::call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls) { call(op, calls, deadline_); }

void Link::call(const char* op, const std::function<ncclResult_t(ncclComm_t)>& calls, milliseconds deadline) {
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

std::optional<std::string> Link::error() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;   // the rank's own call will hear of it
  const ncclResult_t now = state();
  if (now == ncclSuccess || now == ncclInProgress) return std::nullopt;
  return name() + ": " + words(now);
}

void Link::abort() {
  std::unique_lock lock(mutex_, patience_with_a_call);
  if (!lock.owns_lock()) {
    LOG(ERROR) << name() << " does not return from a call of NCCL, so that it cannot be aborted";
    return;
  }
  const ncclComm_t comm = std::exchange(comm_, nullptr);
  lock.unlock();   // NCCL returns when graphs that hold its operations are gone, which whoever is to drop them may first have to hear here
  if (comm != nullptr) ncclCommAbort(comm);
}

}  // namespace pm::comm::nccl
