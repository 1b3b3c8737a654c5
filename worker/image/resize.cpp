// SPDX-License-Identifier: Apache-2.0
// Resizes images with Pillow's resampling filters.
#include "worker/image/resize.h"

#include <algorithm>
#include <cmath>

namespace pm::image {
namespace {

constexpr int precision_bits =
    32 - 8 - 2;  // fraction bits of a weight: 8 bits are the byte, 2 allow sums of weights outside [0, 1]

double sinc(double x) {
  if (x == 0) return 1;
  x *= M_PI;
  return std::sin(x) / x;
}

double weight(Filter filter, double x) {
  x = std::fabs(x);
  switch (filter) {
    case Filter::Box:
      return x <= 0.5 ? 1 : 0;
    case Filter::Bilinear:
      return x < 1 ? 1 - x : 0;
    case Filter::Hamming: {
      if (x == 0) return 1;
      if (x >= 1) return 0;
      x *= M_PI;
      return std::sin(x) / x *
             (static_cast<double>(0.54f) + static_cast<double>(0.46f) * std::cos(x));  // Pillow writes them as floats
    }
    case Filter::Bicubic: {
      constexpr double a = -0.5;
      if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
      return x < 2 ? (((x - 5) * x + 8) * x - 4) * a : 0;
    }
    case Filter::Lanczos:
      return x < 3 ? sinc(x) * sinc(x / 3) : 0;
    case Filter::Nearest:
      break;
  }
  return 0;
}

double support(Filter filter) {
  switch (filter) {
    case Filter::Box:
      return 0.5;
    case Filter::Bicubic:
      return 2;
    case Filter::Lanczos:
      return 3;
    default:
      return 1;
  }
}

/// The source pixels of one output pixel.
struct Taps {
  int64_t first = 0;
  std::vector<int32_t> weights;
};

std::vector<Taps> taps_of(int64_t from, int64_t to, Filter filter) {
  const double scale = static_cast<double>(from) / static_cast<double>(to), stretch = std::max(scale, 1.0);
  const double reach = support(filter) * stretch, inverse = 1 / stretch;
  std::vector<Taps> all(static_cast<size_t>(to));
  std::vector<double> exact;
  for (int64_t i = 0; i < to; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(centre - reach + 0.5), 0);
    const int64_t end = std::min<int64_t>(static_cast<int64_t>(centre + reach + 0.5), from);
    exact.clear();
    double sum = 0;
    for (int64_t x = first; x < end; ++x) {
      exact.push_back(weight(filter, (static_cast<double>(x) - centre + 0.5) * inverse));
      sum += exact.back();
    }
    auto& taps = all[static_cast<size_t>(i)];
    taps.first = first;
    for (double w : exact) {
      if (sum != 0) w /= sum;
      taps.weights.push_back(static_cast<int32_t>((w < 0 ? -0.5 : 0.5) + w * (1 << precision_bits)));
    }
  }
  return all;
}

/// `step`: bytes between the source pixels that are added up.
uint8_t sum_of(const Taps& taps, const uint8_t* source, size_t step) {
  int32_t sum = 1 << (precision_bits - 1);
  for (int32_t w : taps.weights) {
    sum += w * *source;
    source += step;
  }
  return static_cast<uint8_t>(std::clamp(sum >> precision_bits, 0, 255));
}

Image across(const Image& image, int64_t width, Filter filter) {
  Image out{width, image.height, std::vector<uint8_t>(static_cast<size_t>(width * image.height * 3))};
  const auto taps = taps_of(image.width, width, filter);
  uint8_t* to = out.rgb.data();
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = image.rgb.data() + y * image.width * 3;
    for (const auto& tap : taps)
      for (int c = 0; c < 3; ++c) *to++ = sum_of(tap, row + tap.first * 3 + c, 3);
  }
  return out;
}

Image down(const Image& image, int64_t height, Filter filter) {
  Image out{image.width, height, std::vector<uint8_t>(static_cast<size_t>(image.width * height * 3))};
  const auto row = static_cast<size_t>(image.width * 3);
  uint8_t* to = out.rgb.data();
  for (const auto& tap : taps_of(image.height, height, filter)) {
    const uint8_t* top = image.rgb.data() + static_cast<size_t>(tap.first) * row;
    for (size_t x = 0; x < row; ++x) *to++ = sum_of(tap, top + x, row);
  }
  return out;
}

/// Returns the source index of each output index. The position is accumulated step by step with its rounding errors, as
/// Pillow does.
std::vector<int64_t> nearest(int64_t from, int64_t to) {
  std::vector<int64_t> indices(static_cast<size_t>(to));
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  double position = scale * 0.5;
  for (auto& index : indices) {
    index = std::min(static_cast<int64_t>(position), from - 1);
    position += scale;
  }
  return indices;
}

Image pick(const Image& image, int64_t width, int64_t height) {
  Image out{width, height, {}};
  out.rgb.reserve(static_cast<size_t>(width * height * 3));
  const auto columns = nearest(image.width, width);
  for (int64_t y : nearest(image.height, height))
    for (int64_t x : columns) {
      const uint8_t* pixel = image.rgb.data() + (y * image.width + x) * 3;
      out.rgb.insert(out.rgb.end(), pixel, pixel + 3);
    }
  return out;
}

}  // namespace

Image resize(const Image& image, int64_t width, int64_t height, Filter filter) {
  if (width == image.width && height == image.height) return image;
  if (filter == Filter::Nearest) return pick(image, width, height);
  const Image wide = width == image.width ? image : across(image, width, filter);
  return height == image.height ? wide : down(wide, height, filter);
}

}  // namespace pm::image
