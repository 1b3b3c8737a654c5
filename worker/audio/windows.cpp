// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/windows.h"

#include <algorithm>
#include <cmath>

namespace pm::audio {
namespace {

/// Rounds halves to the even number, as Python does.
int64_t rounded(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

}  // namespace

KeptFrames Window::kept(int64_t frames, int64_t align) const {
  const double samples = static_cast<double>(length);
  const int64_t all = rounded(samples * (1 / static_cast<double>(align)));
  const auto scaled = [&](int64_t part) {
    return rounded(static_cast<double>(part) / samples * static_cast<double>(all));
  };
  const int64_t end = std::min(frames, all - scaled(right));
  return {std::min(scaled(left), std::max<int64_t>(end, 0)), std::max<int64_t>(end, 0)};
}

int64_t aligned_samples(double seconds, int64_t rate, int64_t align) {
  return rounded(seconds * static_cast<double>(rate) / static_cast<double>(align)) * align;
}

std::vector<Window> split_windows(int64_t samples, const WindowLengths& lengths) {
  std::vector<Window> windows;
  for (int64_t first = 0; first < samples; first += lengths.chunk - lengths.left - lengths.right) {
    const bool last = first + lengths.chunk >= samples;
    const Window window{first, std::min(lengths.chunk, samples - first), first == 0 ? 0 : lengths.left,
                        last ? 0 : lengths.right};
    if (window.length > window.left) windows.push_back(window);
    if (last) break;
  }
  return windows;
}

}  // namespace pm::audio
