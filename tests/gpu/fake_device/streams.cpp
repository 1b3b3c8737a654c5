// See streams.h.
#include "tests/pretend/streams.h"

#include <c10/core/InferenceMode.h>

#include <vector>

namespace pm::pretend {

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

c10::Stream Streams::another(at::Device device) {
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
  ++queue.given;
}

void Streams::ask(at::Device device, std::function<void()> work) {
  const c10::Stream stream = current(device);
  if (stream.id() == 0) {
    finish(stream);
    return work();
  }
  push(key_of(stream), std::move(work));
  const std::lock_guard lock(mutex_);
  ++asked_;
}

void Streams::put(c10::Stream stream, std::function<void()> work) {
  if (stream.id() != 0) return push(key_of(stream), std::move(work));
  Place waits = end_of(key_of(stream));
  waits.mark = {};
  go_to(waits);
  Stream::of(stream.device_index()).put(std::move(work));
}

Streams::Place Streams::end_of(Key key) {
  const Mark mark = key.second == 0 ? Stream::of(key.first).mark() : Mark{};
  const std::lock_guard lock(mutex_);
  return {key, queues_[key].given, mark};
}

void Streams::go_to(const Place& place) {
  const c10::InferenceMode nothing_is_learned;   // whose tensors may be written here alone
  std::unique_lock lock(mutex_);
  Queue& queue = queues_[place.stream];
  while (queue.done < place.number) {
    if (queue.busy) {                            // another thread does what comes next
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
  place.mark.wait();
}

void Streams::finish(c10::Stream stream) { go_to(end_of(key_of(stream))); }

void Streams::finish(c10::DeviceIndex device) {
  std::vector<Key> keys{{device, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [key, queue] : queues_)
      if (key.first == device) keys.push_back(key);
  }
  for (const Key& key : keys) go_to(end_of(key));
}

void Streams::record(void** event, c10::Stream stream) {
  if (!*event) *event = new Place;
  *static_cast<Place*>(*event) = end_of(key_of(stream));
}

void Streams::block(void* event, c10::Stream stream) {
  if (!event || key_of(stream) == static_cast<Place*>(event)->stream) return;
  push(key_of(stream), [this, place = *static_cast<Place*>(event)] { go_to(place); });
}

void Streams::wait(void* event) {
  if (event) go_to(*static_cast<Place*>(event));
}

bool Streams::over(void* event) {
  const auto* place = static_cast<Place*>(event);
  if (!place) return true;
  const std::lock_guard lock(mutex_);
  return queues_[place->stream].done >= place->number && place->mark.done();
}

bool Streams::over(c10::Stream stream) {
  Place place = end_of(key_of(stream));
  return over(static_cast<void*>(&place));
}

void Streams::destroy(void* event) { delete static_cast<Place*>(event); }

}  // namespace pm::pretend
