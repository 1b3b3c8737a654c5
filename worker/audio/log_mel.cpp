// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/log_mel.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "worker/audio/audio_refusal.h"

namespace pm::audio {
namespace {

constexpr double last_frequency = 8000, least_power = 1e-10, range = 8;

// Slaney's scale: linear up to 1 kHz, which is 15 mels, and logarithmic from there, 27 mels for a factor of 6.4.
constexpr double bend_hertz = 1000, bend_mel = 15, hertz_per_mel = 200.0 / 3, mels_per_factor = 27, factor = 6.4;

double mel(double hertz) {
  return hertz < bend_hertz ? hertz / hertz_per_mel
                            : bend_mel + std::log(hertz / bend_hertz) * mels_per_factor / std::log(factor);
}

double hertz(double mel) {
  return mel < bend_mel ? mel * hertz_per_mel
                        : bend_hertz * std::exp((mel - bend_mel) * std::log(factor) / mels_per_factor);
}

}  // namespace

LogMel::LogMel(int64_t bins, int64_t frame, int64_t hop, int64_t rate)
    : frame_(frame), hop_(hop), transform_(static_cast<size_t>(frame)) {
  for (int64_t i = 0; i < frame; ++i)
    window_.push_back(0.5 - 0.5 * std::cos(2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(frame)));
  const double last = mel(last_frequency);
  const auto corner = [&](int64_t i) { return hertz(last * static_cast<double>(i) / static_cast<double>(bins + 1)); };
  const int64_t points = frame / 2 + 1;
  // as numpy's linspace up to half the rate, which an odd rate rounds down
  const double step = static_cast<double>(rate / 2) / static_cast<double>(points - 1);
  for (int64_t b = 0; b < bins; ++b) {
    const double low = corner(b), middle = corner(b + 1), high = corner(b + 2);
    Triangle triangle;
    for (int64_t point = 0; point < points; ++point) {
      const double at = step * static_cast<double>(point),
                   weight = std::min((at - low) / (middle - low), (high - at) / (high - middle));
      if (weight <= 0) {
        if (triangle.weights.empty()) continue;
        break;
      }
      if (triangle.weights.empty()) triangle.first = static_cast<size_t>(point);
      triangle.weights.push_back(weight * 2 / (high - low));
    }
    triangles_.push_back(std::move(triangle));
  }
}

std::vector<float> LogMel::operator()(std::span<const float> samples) const {
  const auto count = static_cast<int64_t>(samples.size()), half = frame_ / 2;
  if (count <= half || count < hop_)
    throw refused("it has " + std::to_string(count) + " samples, a spectrogram needs more than " +
                  std::to_string(std::max(half, hop_ - 1)));
  const auto all = static_cast<size_t>(frames(count));
  std::vector<float> values(triangles_.size() * all);
  std::vector<FourierTransform::Complex> wave(window_.size()), spectrum(window_.size());
  std::vector<double> power(static_cast<size_t>(half) + 1);
  float largest = 0;
  for (size_t f = 0; f < all; ++f) {
    for (int64_t i = 0; i < frame_; ++i) {
      int64_t at = static_cast<int64_t>(f) * hop_ + i - half;
      if (at < 0) at = -at;
      if (at >= count) at = 2 * (count - 1) - at;
      wave[static_cast<size_t>(i)] = samples[static_cast<size_t>(at)] * window_[static_cast<size_t>(i)];
    }
    transform_(wave, spectrum);
    for (size_t i = 0; i < power.size(); ++i) power[i] = std::norm(spectrum[i]);
    for (size_t b = 0; b < triangles_.size(); ++b) {
      double energy = 0;
      for (size_t i = 0; i < triangles_[b].weights.size(); ++i)
        energy += triangles_[b].weights[i] * power[triangles_[b].first + i];
      const auto value = static_cast<float>(std::log10(std::max(least_power, energy)));
      values[b * all + f] = value;
      largest = f + b == 0 ? value : std::max(largest, value);
    }
  }
  for (float& value : values) value = (std::max(value, largest - static_cast<float>(range)) + 4) / 4;
  return values;
}

}  // namespace pm::audio
