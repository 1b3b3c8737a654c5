// SPDX-License-Identifier: Apache-2.0
#include "controller/core/time.h"

#include <ctime>

#include <cstdio>

namespace pm::k8s {
namespace {

using std::chrono::microseconds;

std::string format(WallTime time, bool fraction) {
  const int64_t total = std::chrono::floor<microseconds>(time.time_since_epoch()).count();
  int64_t seconds = total / 1'000'000, micros = total % 1'000'000;
  if (micros < 0) {
    micros += 1'000'000;
    --seconds;
  }
  const std::time_t stamp = seconds;
  std::tm utc{};
  gmtime_r(&stamp, &utc);
  char text[64];
  const size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  std::snprintf(text + n, sizeof text - n, fraction ? ".%06dZ" : "Z", static_cast<int>(micros));
  return text;
}

/// Reads a number of `count` digits; returns -1 if there is none.
int digits(const std::string& text, size_t at, size_t count) {
  int value = 0;
  for (size_t i = at; i < at + count; ++i) {
    if (text[i] < '0' || text[i] > '9') return -1;
    value = value * 10 + (text[i] - '0');
  }
  return value;
}

/// Reads ".123456789" at *at; returns microseconds and moves *at behind it.
int64_t fraction_at(const std::string& text, size_t& at) {
  if (at >= text.size() || text[at] != '.') return 0;
  int64_t micros = 0, unit = 100'000;
  for (++at; at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at, unit /= 10)
    micros += (text[at] - '0') * unit;
  return micros;
}

/// Reads "Z" or "+01:30" to the end; returns seconds east of UTC.
std::optional<int64_t> offset_at(const std::string& text, size_t at) {
  if (text.substr(at) == "Z" || text.substr(at) == "z") return 0;
  int hours = 0, minutes = 0, used = 0;
  if (text.size() != at + 6 || (text[at] != '+' && text[at] != '-')) return {};
  if (std::sscanf(text.c_str() + at + 1, "%2d:%2d%n", &hours, &minutes, &used) != 2 || used != 5) return {};
  return (text[at] == '-' ? -1 : 1) * (hours * 3600 + minutes * 60);
}

}  // namespace

std::string format_time(WallTime time) { return format(time, false); }
std::string format_micro_time(WallTime time) { return format(time, true); }

std::optional<WallTime> parse_time(const std::string& text) {
  if (text.size() < 20 || text[4] != '-' || text[7] != '-' || text[10] != 'T' || text[13] != ':' || text[16] != ':')
    return {};
  const int year = digits(text, 0, 4), month = digits(text, 5, 2), day = digits(text, 8, 2);
  const int hour = digits(text, 11, 2), minute = digits(text, 14, 2), second = digits(text, 17, 2);
  if (year < 0 || month < 1 || month > 12 || day < 1 || day > 31 || hour < 0 || minute < 0 || second < 0) return {};
  size_t at = 19;
  const int64_t micros = fraction_at(text, at);
  const auto offset = offset_at(text, at);
  if (!offset) return {};
  const std::chrono::sys_days date = std::chrono::year(year) / month / day;
  const auto since = date.time_since_epoch() + std::chrono::hours(hour) + std::chrono::minutes(minute) +
                     std::chrono::seconds(second - *offset) + microseconds(micros);
  return WallTime(std::chrono::duration_cast<WallTime::duration>(since));
}

}  // namespace pm::k8s
