// Streams of the pretended device. Operations of its default stream are done when they are asked for, after what a library has put there (stream.h). What is asked for on another stream is done as late as can
// be: when somebody waits for it, be it the host, the next work of a stream that was told to wait, or work of its own stream that is not put off. So whoever does not wait finds what was there before, and memory
// that was given back too early is gone.
#pragma once
#include <c10/core/Stream.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "tests/pretend/stream.h"

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
  /// What a library queues, which the device does by itself: never done by the caller, where the stream is the default one.
  void put(c10::Stream, std::function<void()> work);
  /// A stream by an address, for libraries that know it by one.
  const c10::Stream* handle(c10::Stream);
  /// All work of a stream; of all streams of a device.
  void finish(c10::Stream);
  void finish(c10::DeviceIndex);

  // events: the place after the last work of a stream
  void record(void** event, c10::Stream);
  void block(void* event, c10::Stream);
  void wait(void* event);
  bool over(void* event);
  bool over(c10::Stream);
  static void destroy(void* event);
  int64_t asked() const { return asked_; }   ///< copies so far that were put off

 private:
  using Key = std::pair<c10::DeviceIndex, c10::StreamId>;
  struct Place { Key stream; int64_t number = 0; Mark mark; };
  struct Queue { std::deque<std::function<void()>> work; int64_t given = 0, done = 0; bool busy = false; };   ///< of the default stream: waits alone
  static Key key_of(c10::Stream stream) { return {stream.device_index(), stream.id()}; }
  Place end_of(Key);
  void push(Key, std::function<void()> work);
  void go_to(const Place&);
  mutable std::mutex mutex_;                ///< of what follows; never held while work is done
  std::condition_variable changed_;
  std::map<Key, Queue> queues_;
  std::map<Key, c10::Stream> handles_;
  c10::StreamId streams_ = 0;
  int64_t asked_ = 0;
};

}  // namespace pm::pretend
