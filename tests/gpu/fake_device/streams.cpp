// SPDX-License-Identifier: Apache-2.0
// The streams of a fake device, whose work is deferred until something waits for it.
#include "tests/gpu/fake_device/streams.h"

#include <c10/core/InferenceMode.h>

#include <vector>

namespace pm::fake_device {

namespace {

constexpr c10::StreamId of_a_pool = 4;
thread_local std::map<c10::DeviceIndex, c10::StreamId> current_streams;

}  // namespace

Streams& Streams::instance() {
  static auto* streams = new Streams;
  return *streams;
}

c10::Stream Streams::current(at::Device device) const {
  const auto found = current_streams.find(device.index());
  return c10::Stream(c10::Stream::UNSAFE, device, found == current_streams.end() ? 0 : found->second);
}

c10::Stream Streams::exchange(c10::Stream stream) {
  const c10::Stream before = current(stream.device());
  current_streams[stream.device_index()] = stream.id();
  return before;
}

c10::Stream Streams::from_pool(at::Device device) {
  const std::lock_guard lock(mutex_);
  return c10::Stream(c10::Stream::UNSAFE, device, 1 + streams_++ % of_a_pool);
}

const c10::Stream* Streams::handle(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  return &handles_.try_emplace(key_of(stream), stream).first->second;
}

void Streams::push(Key key, std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[key];
  queue.work.push_back(std::move(work));
  ++queue.queued;
}

void Streams::enqueue(at::Device device, std::function<void()> work) {
  const c10::Stream stream = current(device);
  if (stream.id() == 0) {
    finish(stream);
    return work();
  }
  push(key_of(stream), std::move(work));
  const std::lock_guard lock(mutex_);
  ++deferred_copies_;
}

void Streams::put(c10::Stream stream, std::function<void()> work) {
  if (stream.id() != 0) return push(key_of(stream), std::move(work));
  Position waits = end_position(key_of(stream));
  waits.mark = {};
  run_until(waits);
  Stream::of(stream.device_index()).put(std::move(work));
}

Streams::Position Streams::end_position(Key key) {
  const Mark mark = key.second == 0 ? Stream::of(key.first).mark() : Mark{};
  const std::lock_guard lock(mutex_);
  return {key, queues_[key].queued, mark};
}

void Streams::run_until(const Position& position) {
  const c10::InferenceMode inference;  // tensors of inference mode may be written only in it
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[position.stream];
  while (queue.done < position.number) {
    if (queue.busy) {  // another thread runs the next work
      changed_.wait(lock);
      continue;
    }
    const std::function<void()> work = std::move(queue.work.front());
    queue.work.pop_front();
    queue.busy = true;
    lock.unlock();
    work();
    lock.lock();
    queue.busy = false;
    ++queue.done;
    changed_.notify_all();
  }
  lock.unlock();
  position.mark.wait();
}

void Streams::finish(c10::Stream stream) { run_until(end_position(key_of(stream))); }

void Streams::finish(c10::DeviceIndex device) {
  std::vector<Key> keys{{device, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, queue] : queues_)
      if (key.first == device) keys.push_back(key);
  }
  for (const Key& key : keys) run_until(end_position(key));
}

void Streams::record(void** event, c10::Stream stream) {
  if (!*event) *event = new Position;
  *static_cast<Position*>(*event) = end_position(key_of(stream));
}

void Streams::block(void* event, c10::Stream stream) {
  if (!event || key_of(stream) == static_cast<Position*>(event)->stream) return;
  push(key_of(stream), [this, position = *static_cast<Position*>(event)] { run_until(position); });
}

void Streams::wait(void* event) {
  if (event) run_until(*static_cast<Position*>(event));
}

bool Streams::is_done(void* event) {
  const auto* position = static_cast<Position*>(event);
  if (!position) return true;
  const std::lock_guard lock(mutex_);
  return queues_[position->stream].done >= position->number && position->mark.done();
}

bool Streams::is_done(c10::Stream stream) {
  Position position = end_position(key_of(stream));
  return is_done(static_cast<void*>(&position));
}

void Streams::destroy(void* event) { delete static_cast<Position*>(event); }

}  // namespace pm::fake_device
