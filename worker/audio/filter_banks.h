// SPDX-License-Identifier: Apache-2.0
// Kaldi's logarithmic mel filter banks.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "worker/audio/fourier.h"

namespace pm::audio {

/// Computes log mel energies of frames of 400 samples at every 160th, by a transform of 512 points, with the steps of
/// transformers' numpy implementation of Kaldi's compute-fbank-feats: mean removed, pre-emphasis 0.97, Povey's window
/// (a Hann window to the power 0.85), power spectrum, triangles on the mel scale from 20 Hz to half the rate, floor
/// 1.19e-7, natural logarithm.
class FilterBanks {
 public:
  static constexpr int64_t frame = 400, hop = 160;  ///< samples, whatever the rate
  FilterBanks(int64_t bins, int64_t rate);
  /// Returns the number of frames of this many samples; the last samples that fill no frame are left out.
  static int64_t frames(int64_t samples) { return samples < frame ? 0 : 1 + (samples - frame) / hop; }
  /// Returns [frames, bins] of samples that go from -1 to 1.
  std::vector<float> operator()(std::span<const float> samples) const;

 private:
  struct Triangle {
    int64_t first = 0;  ///< point of the spectrum
    std::vector<double> weights;
  };
  std::vector<Triangle> triangles_;
  std::vector<double> window_;
  FourierTransform transform_;
};

}  // namespace pm::audio
