// SPDX-License-Identifier: Apache-2.0
// Overlapping windows over long audio, as transformers' pipeline for speech recognition divides it.
#pragma once
#include <cstdint>
#include <vector>

namespace pm::audio {

/// Frames of a window's answer that are kept; the model sees the others as context.
struct KeptFrames {
  int64_t first = 0, end = 0;
};

struct Window {
  int64_t first = 0, length = 0;  ///< samples
  int64_t left = 0, right = 0;    ///< samples of context that other windows answer for

  /// Returns the frames to keep of `frames` frames, each of which stands for `align` samples. Lengths are rounded as in
  /// the pipeline's rescale_stride.
  KeptFrames kept(int64_t frames, int64_t align) const;
  bool operator==(const Window&) const = default;
};

/// Lengths in samples. The step from one window to the next is chunk - left - right, which must be positive.
struct WindowLengths {
  int64_t chunk = 0, left = 0, right = 0;
};

/// Converts seconds to samples, in multiples of `align` samples.
int64_t aligned_samples(double seconds, int64_t rate, int64_t align);

/// Divides `samples` samples into windows.
std::vector<Window> split_windows(int64_t samples, const WindowLengths&);

}  // namespace pm::audio
