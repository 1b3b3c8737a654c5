// Streams of the pretended device. Work of its default stream is done when it is asked for. Copies that are asked for on another stream are done as late as can be: when somebody waits for them, be it the
// host, the next work of a stream that was told to wait, or work of their own stream that is not put off. So whoever does not wait finds what was there before, and memory that was given back too early is gone.
#pragma once
#include <c10/core/Stream.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace pm::pretend {

class Streams {
 public:
  static Streams& instance();
  /// The calling thread's current stream of a device.
  c10::Stream current(at::Device) const;
  c10::Stream exchange(c10::Stream);
  c10::Stream another(at::Device);

  /// To be done on the current stream, later where that is not the default one.
  void ask(at::Device, std::function<void()> work);
  /// All work of a stream; of all streams of a device.
  void finish(c10::Stream);
  void finish(c10::DeviceIndex);

  // events: the place after the last work of a stream
  void record(void** event, c10::Stream);
  void block(void* event, c10::Stream);
  void wait(void* event);
  bool over(void* event);
  static void destroy(void* event);
  int64_t asked() const { return asked_; }   ///< copies so far that were put off

 private:
  using Key = std::pair<c10::DeviceIndex, c10::StreamId>;
  struct Place { Key stream; int64_t number = 0; };
  struct Queue { std::deque<std::function<void()>> work; int64_t given = 0, done = 0; };
  void go_to(const Place&);
  mutable std::recursive_mutex mutex_;
  std::map<Key, Queue> queues_;
  c10::StreamId streams_ = 0;
  int64_t asked_ = 0;
};

}  // namespace pm::pretend
