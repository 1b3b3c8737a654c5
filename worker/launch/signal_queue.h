// Signals as something to poll: blocked while this lives, read from a descriptor.
#pragma once
#include <csignal>
#include <initializer_list>
#include <optional>

namespace pm::launch {

class SignalQueue {
 public:
  explicit SignalQueue(std::initializer_list<int> signals);
  ~SignalQueue();
  SignalQueue(const SignalQueue&) = delete;
  SignalQueue& operator=(const SignalQueue&) = delete;
  int descriptor() const { return descriptor_; }
  /// The next signal that came, if any.
  std::optional<int> next();

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

}  // namespace pm::launch
