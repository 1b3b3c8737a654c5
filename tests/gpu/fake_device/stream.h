// SPDX-License-Identifier: Apache-2.0
// The default stream of a fake device: a thread runs queued work later, in order. ATen's operations run at once, after
// all queued work. So only what is queued here explicitly, by a library of collectives, is asynchronous.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace pm::fake_device {

class Stream;

/// A position in a stream.
struct Mark {
  Stream* stream = nullptr;
  uint64_t number = 0;
  bool done() const;
  void wait() const;
};

class Stream {
 public:
  /// Returns the stream of a device of this process.
  static Stream& of(int device);
  void put(std::function<void()> work);
  /// Returns the position after the work queued so far.
  Mark mark();
  /// Waits for the work queued so far.
  void finish() { mark().wait(); }

 private:
  friend struct Mark;
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t put_ = 0, done_ = 0;
};

}  // namespace pm::fake_device
