// The stream of a pretended device: what is put there is done later, in order, by a thread of its own. ATen's operations are done at once, after all that is in the stream; so only
// what puts work here itself, a library of collectives, is asynchronous.
#pragma once
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>

namespace pm::pretend {

class Stream;

/// A point in a stream.
struct Mark {
  Stream* stream = nullptr;
  uint64_t number = 0;
  bool done() const;
  void wait() const;
};

class Stream {
 public:
  /// One per device and process.
  static Stream& of(int device);
  void put(std::function<void()> work);
  /// After what has been put so far.
  Mark mark();
  /// Waits for what has been put so far.
  void finish() { mark().wait(); }

 private:
  friend struct Mark;
  void run();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  uint64_t put_ = 0, done_ = 0;
};

}  // namespace pm::pretend
