// SPDX-License-Identifier: Apache-2.0
// The discrete Fourier transform.
#pragma once
#include <complex>
#include <cstddef>
#include <span>
#include <vector>

namespace pm::audio {

/// Transforms of one number of points, sum over i of x[i] exp(-2 pi i j / points) for each j, by the algorithm of
/// Cooley and Tukey for the prime factors of that number: points x the sum of the factors operations.
class FourierTransform {
 public:
  using Complex = std::complex<double>;
  explicit FourierTransform(size_t points);
  size_t points() const { return roots_.size(); }
  /// Transforms `in` to `out`, which have `points` values each and do not overlap.
  void operator()(std::span<const Complex> in, std::span<Complex> out) const;

 private:
  void run(const Complex* in, size_t step, Complex* out, size_t count, size_t factor, Complex* turned) const;

  std::vector<Complex> roots_;  ///< exp(-2 pi i k / points)
  std::vector<size_t> factors_;
};

}  // namespace pm::audio
