// SPDX-License-Identifier: Apache-2.0
// Measures the rate of a transfer, and describes how far it is.
#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>

namespace pm::base {

struct Transfer {
  int64_t done = 0, total = 0;  ///< bytes
  double bytes_per_second = 0;  ///< 0: unknown
};

/// "1.2 GiB of 3.0 GiB, 85.0 MiB/s, 22 s left". Rate and time left are omitted where the rate is unknown, the time left
/// also at the end.
std::string to_text(const Transfer&);

/// "45 s", "3 min 20 s", "2 h 5 min", "4 d 2 h"; fractions of a second are rounded up.
std::string format_duration(double seconds);

/// The rate of the last ten seconds, from the bytes so far at any times. Not thread-safe.
class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  void observe(int64_t bytes, Time now);
  /// Returns bytes per second; 0 within the first second.
  double per_second(Time now) const;

 private:
  struct Sample {
    Time time;
    int64_t bytes;
  };
  std::deque<Sample> samples_;
  int64_t latest_ = 0;
};

}  // namespace pm::base
