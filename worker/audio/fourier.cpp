// SPDX-License-Identifier: Apache-2.0
#include "worker/audio/fourier.h"

#include <numbers>
#include <stdexcept>
#include <string>

namespace pm::audio {
namespace {

constexpr size_t most_points = 1 << 16;

}  // namespace

FourierTransform::FourierTransform(size_t points) {
  if (points == 0 || points > most_points)
    throw std::invalid_argument("a Fourier transform of " + std::to_string(points) + " points, expected 1 to 65536");
  for (size_t k = 0; k < points; ++k)
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(points)));
  for (size_t factor = 2, left = points; left > 1; ++factor)
    for (; left % factor == 0; left /= factor) factors_.push_back(factor);
}

void FourierTransform::operator()(std::span<const Complex> in, std::span<Complex> out) const {
  if (in.size() != points() || out.size() != points())
    throw std::invalid_argument("a Fourier transform of " + std::to_string(points()) + " points got " +
                                std::to_string(in.size()) + " values for " + std::to_string(out.size()));
  std::vector<Complex> turned(factors_.empty() ? 1 : factors_.back());
  run(in.data(), 1, out.data(), points(), 0, turned.data());
}

/// Transforms `count` values of every `step`-th input. Each part of a factor is transformed by itself; then value j of
/// the whole is the sum of values j % (count / factor) of the parts, each turned by its part's share of j. `turned` has
/// room for a value of each part.
void FourierTransform::run(const Complex* in, size_t step, Complex* out, size_t count, size_t factor,
                           Complex* turned) const {
  if (count == 1) {
    *out = *in;
    return;
  }
  const size_t parts = factors_[factor], size = count / parts;
  for (size_t part = 0; part < parts; ++part)
    run(in + part * step, step * parts, out + part * size, size, factor + 1, turned);
  for (size_t k = 0; k < size; ++k) {
    for (size_t part = 0; part < parts; ++part) turned[part] = out[part * size + k];
    for (size_t place = 0; place < parts; ++place) {
      const size_t j = place * size + k;
      Complex sum = turned[0];
      for (size_t part = 1; part < parts; ++part) sum += turned[part] * roots_[part * j * step % points()];
      out[j] = sum;
    }
  }
}

}  // namespace pm::audio
