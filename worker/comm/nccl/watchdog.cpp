// See watch.h.
#include "worker/comm/nccl/watch.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>

#include "worker/base/log.h"

namespace pm::comm::nccl {
namespace {

constexpr std::chrono::milliseconds tick{20};

}  // namespace

Watch::Watch(std::shared_ptr<Segment> segment, at::Device device, const Streams& streams, int rank, std::chrono::milliseconds deadline)
    : segment_(std::move(segment)), device_(device), streams_(streams), rank_(rank), deadline_(deadline) {
  thread_ = std::thread([this] { run(); });
}

Watch::~Watch() {
  {
    const std::lock_guard lock(mutex_);
    leaving_ = true;
  }
  woken_.notify_all();
  thread_.join();
}

void Watch::add(Link& link) {
  const std::lock_guard lock(mutex_);
  links_.push_back(&link);
}

void Watch::remove(Link& link) {
  std::unique_lock lock(mutex_);
  woken_.wait(lock, [&] { return !aborting_; });
  std::erase(links_, &link);
}

void Watch::began(const char* op, int64_t bytes) {
  if (streams_.capturing(device_)) return;
  const std::lock_guard lock(mutex_);
  drop_done();
  if (started_.empty()) oldest_since_ = Clock::now();
  if (free_.empty()) free_.emplace_back(device_.type());
  Started& one = started_.emplace_back(Started{std::move(free_.back()), op, bytes});
  free_.pop_back();
  one.event.record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
}

/// With the lock.
void Watch::drop_done() {
  while (!started_.empty() && started_.front().event.query()) {
    free_.push_back(std::move(started_.front().event));
    started_.pop_front();
    oldest_since_ = Clock::now();
  }
}

void Watch::abort(const std::string& reason) {
  segment_->abort(reason);
  woken_.notify_all();
}

/// With the lock. True when there is nothing left to look after.
bool Watch::look(std::unique_lock<std::mutex>& lock) {
  if (segment_->note().aborted()) {
    const std::vector<Link*> links = links_;
    aborting_ = true;
    lock.unlock();                  // the rank's own thread goes on, and gives up what an abort may wait for
    std::vector<std::thread> all;   // at once: what one communicator frees may wait for all of the device, and so for what another has there
    for (Link* link : links) all.emplace_back([link] { link->abort(); });
    for (std::thread& one : all) one.join();
    lock.lock();
    aborting_ = false;
    woken_.notify_all();
    return true;
  }
  drop_done();
  if (!started_.empty() && Clock::now() - oldest_since_ > deadline_) {
    const Started& oldest = started_.front();
    segment_->abort(std::string(oldest.op) + (oldest.bytes > 0 ? " of " + std::to_string(oldest.bytes) + " bytes" : "") + " on rank " + std::to_string(rank_) + " waited " + std::to_string(deadline_.count()) +
                    " ms for other ranks on " + device_.str());
    return false;
  }
  for (Link* link : links_) {
    if (const auto what = link->error()) {
      segment_->abort(*what);
      break;
    }
  }
  return false;
}

void Watch::run() {
  std::unique_lock lock(mutex_);
  while (!leaving_) {
    bool over = false;
    try {
      over = look(lock);
    } catch (const std::exception& error) {   // a device that has failed says so of every event
      segment_->abort("rank " + std::to_string(rank_) + " on " + device_.str() + ": " + error.what());
      continue;
    }
    over ? woken_.wait(lock, [&] { return leaving_; }) : (void)woken_.wait_for(lock, tick);
  }
}

}  // namespace pm::comm::nccl
