// SPDX-License-Identifier: Apache-2.0
// Logarithmic mel spectrograms (Radford et al. 2022, Whisper).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/audio/fourier.h"

namespace pm::audio {

/// Computes spectrograms of frames of `frame` samples at every `hop`-th, as transformers' WhisperFeatureExtractor: a
/// periodic Hann window, the power of the spectrum, triangles on Slaney's mel scale up to 8 kHz with the same area,
/// the logarithm to base 10, at most 8 below the largest of the whole audio, and (x + 4) / 4.
class LogMel {
 public:
  LogMel(int64_t bins, int64_t frame, int64_t hop, int64_t rate);
  /// Returns the number of frames of this many samples. The first is centred on the first sample.
  int64_t frames(int64_t samples) const { return samples / hop_; }
  /// Returns [bins, frames] of samples that go from -1 to 1. Beyond its ends the audio is mirrored, so it needs more
  /// than half a frame of samples. Throws Error{AudioRefused} for less.
  std::vector<float> operator()(std::span<const float> samples) const;

 private:
  struct Triangle {
    size_t first = 0;  ///< point of the spectrum
    std::vector<double> weights;
  };
  int64_t frame_, hop_;
  std::vector<double> window_;
  std::vector<Triangle> triangles_;
  FourierTransform transform_;
};

}  // namespace pm::audio
