// SPDX-License-Identifier: Apache-2.0
// Makes signals pollable: they are blocked while a SignalQueue lives and are read from its descriptor.
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
  /// Returns the next pending signal, if any.
  std::optional<int> next();

 private:
  sigset_t before_{};
  int descriptor_ = -1;
};

}  // namespace pm::launch
