// SPDX-License-Identifier: Apache-2.0
#include "worker/comm/nccl/watchdog.h"

#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "base/log.h"

namespace pm::comm::nccl {
namespace {

constexpr std::chrono::milliseconds tick{20};

}  // namespace

Watchdog::Watchdog(std::shared_ptr<Segment> segment, at::Device device, const Streams& streams, int rank,
                   std::chrono::milliseconds deadline)
    : segment_(std::move(segment)), device_(device), streams_(streams), rank_(rank), deadline_(deadline) {
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  woken_.notify_all();
  thread_.join();
  c10::OptionalDeviceGuard here;  // events are destroyed on the current device
  try {
    here.reset_device(device_);
  } catch (const c10::Error&) {  // a failed device has no events to destroy
  }
  started_.clear();
  free_.clear();
}

void Watchdog::add(NcclComm& nccl_comm) {
  const std::lock_guard lock(mutex_);
  comms_.push_back(&nccl_comm);
}

void Watchdog::remove(NcclComm& nccl_comm) {
  std::unique_lock lock(mutex_);
  woken_.wait(lock, [&] { return !aborting_; });
  std::erase(comms_, &nccl_comm);
}

void Watchdog::enqueued(const char* op, int64_t bytes) {
  if (streams_.capturing(device_)) return;
  const std::lock_guard lock(mutex_);
  drop_done();
  if (started_.empty()) oldest_since_ = Clock::now();
  if (free_.empty()) free_.emplace_back(device_.type());
  Started& one = started_.emplace_back(Started{std::move(free_.back()), op, bytes});
  free_.pop_back();
  one.event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

/// Drops finished operations from the queue. Requires the lock.
void Watchdog::drop_done() {
  while (!started_.empty() && started_.front().event.query()) {
    free_.push_back(std::move(started_.front().event));
    started_.pop_front();
    oldest_since_ = Clock::now();
  }
}

void Watchdog::abort(const std::string& reason) {
  segment_->abort(reason);
  woken_.notify_all();
}

/// Requires the lock. Returns true when nothing is left to watch.
bool Watchdog::look(std::unique_lock<std::mutex>& lock) {
  if (segment_->note().aborted()) {
    const std::vector<NcclComm*> comms = comms_;
    aborting_ = true;
    lock.unlock();  // the thread of the rank continues and releases what an abort may wait for
    std::vector<std::thread>
        all;  // all at once: what one communicator frees may wait for the whole device, and so for the work of another
    for (NcclComm* nccl_comm : comms) all.emplace_back([nccl_comm] { nccl_comm->abort(); });
    for (std::thread& one : all) one.join();
    lock.lock();
    aborting_ = false;
    woken_.notify_all();
    return true;
  }
  drop_done();
  if (!started_.empty() && Clock::now() - oldest_since_ > deadline_) {
    const Started& oldest = started_.front();
    segment_->abort(std::string(oldest.op) +
                    (oldest.bytes > 0 ? " of " + std::to_string(oldest.bytes) + " bytes" : "") + " on rank " +
                    std::to_string(rank_) + " waited " + std::to_string(deadline_.count()) + " ms for other ranks on " +
                    device_.str());
    return false;
  }
  for (NcclComm* nccl_comm : comms_) {
    if (const auto what = nccl_comm->error()) {
      segment_->abort(*what);
      break;
    }
  }
  return false;
}

/// The thread selects the device of its rank: a query of an event in a thread without a device makes a context on
/// device 0, which takes some hundred MiB of the GPU of another rank.
void Watchdog::run() {
  c10::OptionalDeviceGuard here;
  try {
    here.reset_device(device_);
  } catch (const c10::Error& error) {
    segment_->abort("rank " + std::to_string(rank_) + " on " + device_.str() + ": " + error.what_without_backtrace());
  }
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    bool over = false;
    try {
      over = look(lock);
    } catch (const std::exception& error) {  // a failed device reports its error for every event
      segment_->abort("rank " + std::to_string(rank_) + " on " + device_.str() + ": " + error.what());
      continue;
    }
    over ? woken_.wait(lock, [&] { return leaving_; }) : (void)woken_.wait_for(lock, tick);
  }
}

}  // namespace pm::comm::nccl
