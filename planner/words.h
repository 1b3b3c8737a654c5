// Numbers as people read them in reasons and messages.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>

namespace pm {

inline std::string number(int64_t value) { return std::to_string(value); }

inline std::string devices(int64_t count) { return number(count) + (count == 1 ? " device" : " devices"); }

/// 1,536 -> "1.5 KiB": binary units, one decimal, whole bytes below 1 KiB.
inline std::string bytes(int64_t value) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto size = static_cast<double>(value);
  int unit = 0;
  for (; size >= 1023.95 && unit < 5; ++unit) size /= 1024;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
  return text;
}

/// 0.0123 -> "12.3 ms".
inline std::string seconds(double value) {
  char text[32];
  if (value >= 1) std::snprintf(text, sizeof text, "%.2f s", value);
  else if (value >= 1e-3) std::snprintf(text, sizeof text, "%.2f ms", value * 1e3);
  else std::snprintf(text, sizeof text, "%.1f us", value * 1e6);
  return text;
}

/// 812.4 -> "812 tokens/s".
inline std::string tokens_rate(double value) {
  char text[32];
  std::snprintf(text, sizeof text, value < 10 ? "%.2f tokens/s" : "%.0f tokens/s", value);
  return text;
}

}  // namespace pm
