// Exponential delays as pure functions of time and chance.
#pragma once
#include <chrono>
#include <functional>
#include <optional>

#include "controller/core/clock.h"

namespace pm::k8s {

/// A number in [0, 1); a parameter so that tests know it.
using Uniform = std::function<double()>;

/// base x 2^n, at most cap.
std::chrono::milliseconds exponential(std::chrono::milliseconds base, int n, std::chrono::milliseconds cap);

/// The delays of a watch that fails: 0.8 s x 2^n up to 30 s, each stretched by up to its double, starting anew when none was needed for
/// two minutes. Source: client-go tools/cache/reflector.go.
class WatchBackoff {
 public:
  explicit WatchBackoff(Uniform uniform) : uniform_(std::move(uniform)) {}
  std::chrono::milliseconds next(Clock::Steady now);

 private:
  Uniform uniform_;
  int failures_ = 0;
  std::optional<Clock::Steady> last_;
};

}  // namespace pm::k8s
