// SPDX-License-Identifier: Apache-2.0
// The default stream of a fake device: a queue and the thread that runs it.
#include "tests/gpu/fake_device/stream.h"

#include <map>
#include <thread>

namespace pm::fake_device {

Stream& Stream::of(int device) {
  static std::mutex mutex;
  static auto* all = new std::map<int, Stream*>;  // never destroyed; its threads end with the process
  const std::lock_guard lock(mutex);
  Stream*& stream = (*all)[device];
  if (stream == nullptr) {
    stream = new Stream;
    std::thread([stream] { stream->run(); }).detach();
  }
  return *stream;
}

void Stream::put(std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  work_.push_back(std::move(work));
  ++put_;
  changed_.notify_all();
}

Mark Stream::mark() {
  const std::lock_guard lock(mutex_);
  return {this, put_};
}

void Stream::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !work_.empty(); });
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

bool Mark::done() const {
  if (stream == nullptr) return true;
  const std::lock_guard lock(stream->mutex_);
  return stream->done_ >= number;
}

void Mark::wait() const {
  if (stream == nullptr) return;
  std::unique_lock lock(stream->mutex_);
  stream->changed_.wait(lock, [&] { return stream->done_ >= number; });
}

}  // namespace pm::fake_device
