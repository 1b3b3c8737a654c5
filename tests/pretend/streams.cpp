// See streams.h.
#include "tests/pretend/streams.h"

#include <c10/core/InferenceMode.h>

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

void Streams::ask(at::Device device, std::function<void()> work) {
  const c10::Stream stream = current(device);
  const std::lock_guard lock(mutex_);
  if (stream.id() == 0) {
    finish(stream);
    return work();
  }
  Queue& queue = queues_[{stream.device_index(), stream.id()}];
  queue.work.push_back(std::move(work));
  ++queue.given;
  ++asked_;
}

void Streams::go_to(const Place& place) {
  const c10::InferenceMode nothing_is_learned;   // whose tensors may be written here alone
  const std::lock_guard lock(mutex_);
  Queue& queue = queues_[place.stream];
  while (queue.done < place.number) {
    const std::function<void()> work = std::move(queue.work.front());
    queue.work.pop_front();
    ++queue.done;
    work();
  }
}

void Streams::finish(c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  const Key key{stream.device_index(), stream.id()};
  go_to({key, queues_[key].given});
}

void Streams::finish(c10::DeviceIndex device) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, queue] : queues_) {
    if (key.first == device) go_to({key, queue.given});
  }
}

void Streams::record(void** event, c10::Stream stream) {
  const std::lock_guard lock(mutex_);
  if (!*event) *event = new Place;
  const Key key{stream.device_index(), stream.id()};
  *static_cast<Place*>(*event) = {key, queues_[key].given};
}

void Streams::block(void* event, c10::Stream stream) {
  if (!event) return;
  const std::lock_guard lock(mutex_);
  const Place place = *static_cast<Place*>(event);
  const Key key{stream.device_index(), stream.id()};
  if (key == place.stream) return;
  Queue& queue = queues_[key];
  queue.work.push_back([this, place] { go_to(place); });
  ++queue.given;
}

void Streams::wait(void* event) {
  const std::lock_guard lock(mutex_);
  if (event) go_to(*static_cast<Place*>(event));
}

bool Streams::over(void* event) {
  const std::lock_guard lock(mutex_);
  const auto* place = static_cast<Place*>(event);
  return !place || queues_[place->stream].done >= place->number;
}

void Streams::destroy(void* event) { delete static_cast<Place*>(event); }

}  // namespace pm::pretend
