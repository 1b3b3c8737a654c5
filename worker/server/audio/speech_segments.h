// SPDX-License-Identifier: Apache-2.0
// Divides the answer to a window of speech into the segments that its times delimit.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace pm::server {

/// Times are numbers of steps from the beginning of the window.
struct SpeechSegment {
  int64_t start = 0, end = 0;
  std::vector<int32_t> tokens;  ///< with those of its times
  bool operator==(const SpeechSegment&) const = default;
};

/// What a window answers for.
struct AnsweredWindow {
  std::vector<SpeechSegment> segments;
  int64_t frames = 0;  ///< from its beginning; the next window begins behind them
};

/// Divides the answer to a window of `frames` frames of audio, `stride` of which are a step of time. Two times in a row
/// end a segment. What stands behind the last of these was cut by the end of the window and is left to the next one,
/// unless the answer ends with a single time, behind which there is no speech (section 3.8 of Radford et al. 2022;
/// transformers' _retrieve_segment). An answer without two times in a row is one segment.
AnsweredWindow split_segments(std::span<const int32_t> tokens, int32_t first_timestamp, int64_t frames, int64_t stride);

}  // namespace pm::server
