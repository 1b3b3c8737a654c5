// Time as a parameter: whoever waits or stamps takes a Clock, and tests give one that stands still.
#pragma once
#include <chrono>

namespace pm::k8s {

/// Both clocks of the machine. Thread-safe.
class Clock {
 public:
  using Steady = std::chrono::steady_clock::time_point;
  using Wall = std::chrono::system_clock::time_point;
  virtual ~Clock() = default;
  virtual Steady now() const = 0;   ///< for durations and deadlines
  virtual Wall wall() const = 0;    ///< for stamps that people and other programs read
};

class RealClock final : public Clock {
 public:
  Steady now() const override { return std::chrono::steady_clock::now(); }
  Wall wall() const override { return std::chrono::system_clock::now(); }
};

}  // namespace pm::k8s
