// SPDX-License-Identifier: Apache-2.0
// Formats counts, seconds and rates for the messages of a plan.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace pm::text {

inline std::string number(int64_t value) { return std::to_string(value); }

inline std::string devices(int64_t count) { return number(count) + (count == 1 ? " device" : " devices"); }

/// 0.0123 -> "12.3 ms".
inline std::string seconds(double value) {
  char text[32];
  if (value >= 1)
    std::snprintf(text, sizeof text, "%.2f s", value);
  else if (value >= 1e-3)
    std::snprintf(text, sizeof text, "%.2f ms", value * 1e3);
  else
    std::snprintf(text, sizeof text, "%.1f us", value * 1e6);
  return text;
}

/// 812.4 -> "812 tokens/s".
inline std::string tokens_rate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f tokens/s" : "%.0f tokens/s", value);
  return text;
}

}  // namespace pm::text
