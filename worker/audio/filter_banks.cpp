// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/filter_banks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <complex>
#include <limits>
#include <numbers>

namespace pm::audio {
namespace {

constexpr size_t points = 512;
constexpr double pre_emphasis = 0.97, least_frequency = 20, full_scale = 32768;
constexpr double mel_floor = std::numeric_limits<float>::epsilon();

double mel(double hertz) { return 1127.0 * std::log(1.0 + hertz / 700.0); }

}  // namespace

FilterBanks::FilterBanks(int64_t bins, int64_t rate) : transform_(points) {
  for (int64_t i = 0; i < frame; ++i) {
    const double hann = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / (frame - 1));
    window_.push_back(std::pow(hann, 0.85));
  }
  const double first = mel(least_frequency), last = mel(static_cast<double>(rate / 2));
  const auto corner = [&](int64_t i) {
    return first + (last - first) * static_cast<double>(i) / static_cast<double>(bins + 1);
  };
  for (int64_t b = 0; b < bins; ++b) {
    Triangle triangle;
    for (int64_t point = 0; point <= static_cast<int64_t>(points) / 2; ++point) {
      const double at = mel(static_cast<double>(rate) / points * static_cast<double>(point));
      const double up = (at - corner(b)) / (corner(b + 1) - corner(b)),
                   down = (corner(b + 2) - at) / (corner(b + 2) - corner(b + 1)), weight = std::min(up, down);
      if (weight <= 0) continue;
      if (triangle.weights.empty()) triangle.first = point;
      triangle.weights.push_back(weight);
    }
    triangles_.push_back(std::move(triangle));
  }
}

std::vector<float> FilterBanks::operator()(std::span<const float> samples) const {
  const int64_t count = frames(static_cast<int64_t>(samples.size()));
  std::vector<float> values;
  values.reserve(static_cast<size_t>(count) * triangles_.size());
  std::vector<FourierTransform::Complex> padded(points), spectrum(points);
  std::array<double, points / 2 + 1> power;
  std::array<double, frame> wave;
  for (int64_t f = 0; f < count; ++f) {
    double mean = 0;
    for (size_t i = 0; i < wave.size(); ++i) {
      wave[i] = samples[static_cast<size_t>(f * hop) + i] * full_scale;
      mean += wave[i] / frame;
    }
    for (size_t i = 0; i < wave.size(); ++i) {
      const double before = wave[i > 0 ? i - 1 : 0] - mean;
      padded[i] = (wave[i] - mean - pre_emphasis * before) * window_[i];
    }
    transform_(padded, spectrum);
    for (size_t i = 0; i < power.size(); ++i)  // transformers keeps the spectrum in single precision
      power[i] = std::norm(std::complex<double>(std::complex<float>(spectrum[i])));
    for (const Triangle& triangle : triangles_) {
      double energy = 0;
      for (size_t i = 0; i < triangle.weights.size(); ++i)
        energy += triangle.weights[i] * power[static_cast<size_t>(triangle.first) + i];
      values.push_back(static_cast<float>(std::log(std::max(mel_floor, energy))));
    }
  }
  return values;
}

}  // namespace pm::audio
