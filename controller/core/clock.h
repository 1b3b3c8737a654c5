// SPDX-License-Identifier: Apache-2.0
// Injects time: code that waits or takes time stamps uses a Clock, and tests pass a fake clock.
#pragma once
#include <chrono>

namespace pm::k8s {

/// Both clocks of the machine. Thread-safe.
class Clock {
 public:
  using Steady = std::chrono::steady_clock::time_point;
  using Wall = std::chrono::system_clock::time_point;
  virtual ~Clock() = default;
  virtual Steady now() const = 0;  ///< for durations and deadlines
  virtual Wall wall() const = 0;   ///< for stamps that people and other programs read
};

class RealClock final : public Clock {
 public:
  Steady now() const override { return std::chrono::steady_clock::now(); }
  Wall wall() const override { return std::chrono::system_clock::now(); }
};

}  // namespace pm::k8s
