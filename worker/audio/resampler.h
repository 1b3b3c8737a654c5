// SPDX-License-Identifier: Apache-2.0
// Sample rate conversion, block by block.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace pm::audio {

/// Converts one channel from a rate to another with soxr's high quality, which is librosa's default.
class Resampler {
 public:
  /// Equal rates copy. Throws std::bad_alloc where soxr finds no memory.
  Resampler(int64_t from, int64_t to);
  /// Appends what these samples complete.
  void push(std::span<const float> samples, std::vector<float>& to);
  /// Appends the rest at the end of the input.
  void flush(std::vector<float>& to);

 private:
  std::shared_ptr<void> converter_;  ///< absent: equal rates
};

}  // namespace pm::audio
