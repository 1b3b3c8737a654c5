// SPDX-License-Identifier: Apache-2.0
#include "base/byte_size.h"

#include <cstdio>

namespace pm::base {

std::string format_bytes(int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto size = static_cast<double>(bytes);
  int unit = 0;
  for (; size >= 1023.95 && unit < 5; ++unit) size /= 1024;  // from 1023.95 on, one decimal would show 1024.0
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", size, units[unit]);
  return text;
}

}  // namespace pm::base
