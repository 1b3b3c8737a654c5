// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/speech_segments.h"

#include <algorithm>

namespace pm::server {

AnsweredWindow split_segments(std::span<const int32_t> tokens, int32_t first_timestamp, int64_t frames,
                              int64_t stride) {
  const auto is_time = [&](size_t i) { return tokens[i] >= first_timestamp; };
  const auto step = [&](size_t i) { return static_cast<int64_t>(tokens[i]) - first_timestamp; };
  const size_t count = tokens.size();
  const bool ends_with_one = count >= 2 && !is_time(count - 2) && is_time(count - 1);
  std::vector<size_t> ends;  // of segments: the second of two times in a row begins the next one
  for (size_t i = 1; i < count; ++i)
    if (is_time(i - 1) && is_time(i)) ends.push_back(i);
  AnsweredWindow answered{.segments = {}, .frames = frames};
  if (ends.empty()) {
    SpeechSegment whole{0, frames / stride, {tokens.begin(), tokens.end()}};
    for (size_t i = count; i-- > 0;) {
      if (!is_time(i)) continue;
      if (step(i) > 0) whole.end = step(i);
      break;
    }
    answered.segments.push_back(std::move(whole));
    return answered;
  }
  if (ends_with_one) ends.push_back(count);
  size_t first = 0;
  for (const size_t end : ends) {
    const auto own = tokens.subspan(first, end - first);
    answered.segments.push_back({step(first), step(end - 1), {own.begin(), own.end()}});
    first = end;
  }
  // a window that answers for nothing would be read again and again
  if (!ends_with_one && step(first - 1) > 0) answered.frames = std::min(frames, step(first - 1) * stride);
  return answered;
}

}  // namespace pm::server
