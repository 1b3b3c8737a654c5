// SPDX-License-Identifier: Apache-2.0
#include "base/transfer.h"

#include <algorithm>
#include <cmath>

#include "base/byte_size.h"

namespace pm::base {
namespace {

using std::chrono::duration;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds window{10}, least_time{1};
constexpr milliseconds sample_interval{250};
constexpr double longest = 1e9;  // seconds; a rate of almost nothing would give more than an integer holds

}  // namespace

std::string format_duration(double duration) {
  const auto whole = static_cast<int64_t>(std::ceil(std::clamp(duration, 0.0, longest)));
  const auto pair = [&](int64_t unit, const char* large, int64_t part, const char* small) {
    const int64_t rest = whole % unit / part;
    return std::to_string(whole / unit) + large + (rest > 0 ? " " + std::to_string(rest) + small : "");
  };
  if (whole < 120) return std::to_string(whole) + " s";
  if (whole < 7200) return pair(60, " min", 1, " s");
  if (whole < 172'800) return pair(3600, " h", 60, " min");
  return pair(86'400, " d", 3600, " h");
}

std::string to_text(const Transfer& transfer) {
  std::string text = format_bytes(transfer.done) + " of " + format_bytes(transfer.total);
  if (transfer.bytes_per_second < 1) return text;
  text += ", " + format_bytes(static_cast<int64_t>(std::min(transfer.bytes_per_second, 1e18))) + "/s";
  if (transfer.done >= transfer.total) return text;
  return text + ", " +
         format_duration(static_cast<double>(transfer.total - transfer.done) / transfer.bytes_per_second) + " left";
}

void RateMeter::observe(int64_t bytes, Time now) {
  latest_ = bytes;
  if (!samples_.empty() && now - samples_.back().time < sample_interval) return;
  samples_.push_back({now, bytes});
  while (samples_.size() > 1 && samples_[1].time <= now - window) samples_.pop_front();
}

double RateMeter::per_second(Time now) const {
  if (samples_.empty()) return 0;
  auto base = samples_.begin();
  while (std::next(base) != samples_.end() && std::next(base)->time <= now - window) ++base;
  if (now - base->time < least_time) return 0;
  return static_cast<double>(latest_ - base->bytes) / duration<double>(now - base->time).count();
}

}  // namespace pm::base
