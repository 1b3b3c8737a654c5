// SPDX-License-Identifier: Apache-2.0
// Streams of the fake device. Operations on its default stream run at once, after what a library has queued there
// (stream.h). Work on another stream runs as late as possible: when the host waits for it, when work runs on a stream
// that waits for it, or when work of its own stream that is not deferred runs. So code that forgets to wait finds old
// data, and memory that was freed too early is gone.
#pragma once
#include <c10/core/Stream.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

#include "tests/gpu/fake_device/stream.h"

namespace pm::fake_device {

class Streams {
 public:
  static Streams& instance();
  /// Returns the calling thread's current stream of a device.
  c10::Stream current(at::Device) const;
  c10::Stream exchange(c10::Stream);
  c10::Stream from_pool(at::Device);

  /// Queues work on the current stream; it is deferred unless the stream is the default one.
  void enqueue(at::Device, std::function<void()> work);
  /// Queues work of a library; on the default stream it runs asynchronously, never in the caller.
  void put(c10::Stream, std::function<void()> work);
  /// Returns a stable address of a stream, for libraries that identify streams by address.
  const c10::Stream* handle(c10::Stream);
  /// Waits for all work of a stream, or of all streams of a device.
  void finish(c10::Stream);
  void finish(c10::DeviceIndex);

  // Events: the position after the last work of a stream.
  void record(void** event, c10::Stream);
  void block(void* event, c10::Stream);
  void wait(void* event);
  bool is_done(void* event);
  bool is_done(c10::Stream);
  static void destroy(void* event);
  int64_t deferred_copies() const { return deferred_copies_; }  ///< copies deferred so far

 private:
  using Key = std::pair<c10::DeviceIndex, c10::StreamId>;
  struct Position {
    Key stream;
    int64_t number = 0;
    Mark mark;
  };
  struct Queue {
    std::deque<std::function<void()>> work;
    int64_t queued = 0, done = 0;
    bool busy = false;
  };  ///< on the default stream only waits
  static Key key_of(c10::Stream stream) { return {stream.device_index(), stream.id()}; }
  Position end_position(Key);
  void push(Key, std::function<void()> work);
  void run_until(const Position&);
  mutable std::mutex mutex_;  ///< guards the members below; never held while work runs
  std::condition_variable changed_;
  std::map<Key, Queue> queues_;
  std::map<Key, c10::Stream> handles_;
  c10::StreamId streams_ = 0;
  int64_t deferred_copies_ = 0;
};

}  // namespace pm::fake_device
