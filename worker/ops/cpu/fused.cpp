// See ../fused.h.

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>

#include "worker/ops/cpu/backend.h"
#include "worker/ops/cpu/kernels.h"
#include "worker/ops/cpu/team.h"

namespace pm::ops {

namespace {

constexpr int64_t elements_per_chunk = int64_t{1} << 15;   // some microseconds

/// Calls row(i) for all rows, several threads where there is enough for them.
template <typename Row>
void each_row(int64_t rows, int64_t width, Row&& row) {
  const int64_t chunks = std::clamp<int64_t>(rows * width / elements_per_chunk, 1, std::max<int64_t>(1, rows));
  team().each(chunks, [&](int64_t chunk) {
    for (int64_t i = rows * chunk / chunks; i < rows * (chunk + 1) / chunks; ++i) row(i);
  });
}

/// Sum of f(x[i]): sixteen running sums, which vectorise, in double: what is lost here, layers that follow make larger.
template <typename F>
double total(const float* x, int64_t width, F&& f) {
  double parts[16] = {};
  int64_t i = 0;
  for (; i + 16 <= width; i += 16) {
    for (int lane = 0; lane < 16; ++lane) parts[lane] += f(x[i + lane]);
  }
  for (; i < width; ++i) parts[i % 16] += f(x[i]);
  for (int step = 8; step > 0; step /= 2) {
    for (int lane = 0; lane < step; ++lane) parts[lane] += parts[lane + step];
  }
  return parts[0];
}

/// y = (x - shift) * scale * (centre + gain) + bias, row by row, rounded once; gain and bias are of type T or nullptr. One rounding instead of four is what
/// keeps sharp softmaxes some layers later near those of exact arithmetic; beside the matrices its time does not show.
template <typename T>
void normalise(const float* x, float* y, int64_t width, double shift, double scale, const T* gain, double centre, const T* bias) {
  const auto each = [&](auto&& finish) {
    for (int64_t i = 0; i < width; ++i) y[i] = static_cast<float>(finish((x[i] - shift) * scale, i));
  };
  const auto gained = [gain, centre](double value, int64_t i) { return value * (centre + static_cast<float>(gain[i])); };
  const auto biased = [bias](double value, int64_t i) { return value + static_cast<float>(bias[i]); };
  if (gain && bias) each([&](double value, int64_t i) { return biased(gained(value, i), i); });
  else if (gain) each(gained);
  else if (bias) each(biased);
  else each([](double value, int64_t) { return value; });
}

/// `residual`, where it is defined, is added to the rows of `given` first, which has to be contiguous then.
template <typename Statistics>
at::Tensor norm(const at::Tensor& given, const at::Tensor& residual, const at::Tensor& given_gain, double centre, const at::Tensor& given_bias, Statistics&& statistics) {
  const at::Tensor x = given.contiguous();
  at::Tensor y = at::empty_like(x);
  const at::ScalarType type = given_gain.defined() ? given_gain.scalar_type() : given_bias.defined() ? given_bias.scalar_type() : at::kFloat;
  const at::Tensor gain = given_gain.defined() ? given_gain.contiguous() : given_gain, bias = given_bias.defined() ? given_bias.to(type).contiguous() : given_bias;
  const int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "norm", [&] {
    const scalar_t* gains = gain.defined() ? gain.const_data_ptr<scalar_t>() : nullptr;
    const scalar_t* biases = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
    const float* from = x.const_data_ptr<float>();
    const float* added = residual.defined() ? residual.const_data_ptr<float>() : nullptr;
    float* to = y.mutable_data_ptr<float>();
    each_row(rows, width, [&](int64_t row) {
      if (added) {
        float* sum = const_cast<float*>(from) + row * width;   // x is the caller's to change
        for (int64_t i = 0; i < width; ++i) sum[i] += added[row * width + i];
      }
      const auto [shift, scale] = statistics(from + row * width, width);
      normalise(from + row * width, to + row * width, width, shift, scale, gains, centre, biases);
    });
  });
  return y;
}

auto layer_statistics(double eps) {
  return [eps](const float* row, int64_t width) {
    const auto n = static_cast<double>(width), mean = total(row, width, [](double value) { return value; }) / n;
    const double variance = total(row, width, [mean](double value) { return (value - mean) * (value - mean); }) / n;
    return std::pair(mean, 1 / std::sqrt(variance + eps));
  };
}

auto rms_statistics(double eps) {
  return [eps](const float* row, int64_t width) {
    const double mean = total(row, width, [](double value) { return value * value; }) / static_cast<double>(width);
    return std::pair(0.0, 1 / std::sqrt(mean + eps));
  };
}

}  // namespace

at::Tensor Cpu::layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) const { return norm(x, {}, gain, 0, bias, layer_statistics(eps)); }
at::Tensor Cpu::rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre) const { return norm(x, {}, gain, centre, {}, rms_statistics(eps)); }

at::Tensor Cpu::sum_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, const at::Tensor& bias, double eps) const {
  if (!x.is_contiguous() || !residual.is_contiguous()) return Backend::sum_layer_norm(x, residual, gain, bias, eps);
  return norm(x, residual, gain, 0, bias, layer_statistics(eps));
}

at::Tensor Cpu::sum_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& gain, double eps, double centre) const {
  if (!x.is_contiguous() || !residual.is_contiguous()) return Backend::sum_rms_norm(x, residual, gain, eps, centre);
  return norm(x, residual, gain, centre, {}, rms_statistics(eps));
}

Angles Cpu::rotary_angles(const at::Tensor& given, const at::Tensor& frequencies, double factor) const {
  const at::Tensor positions = given.contiguous();
  const int64_t tokens = positions.size(0), n = frequencies.size(0);
  Angles angles{at::empty({tokens, 1, n}, at::kFloat), at::empty({tokens, 1, n}, at::kFloat)};
  const int64_t* position = positions.const_data_ptr<int64_t>();
  const float* frequency = frequencies.const_data_ptr<float>();
  float *cos = angles.cos.mutable_data_ptr<float>(), *sin = angles.sin.mutable_data_ptr<float>();
  each_row(tokens, 16 * n, [&](int64_t token) {   // 16: about what a cosine costs
    for (int64_t i = 0; i < n; ++i) {
      const float turn = static_cast<float>(position[token]) * frequency[i];
      cos[token * n + i] = std::cos(turn) * static_cast<float>(factor);
      sin[token * n + i] = std::sin(turn) * static_cast<float>(factor);
    }
  });
  return angles;
}

at::Tensor Cpu::rotate(const at::Tensor& given, const Angles& angles, bool halves) const {
  const at::Tensor x = given.stride(2) == 1 ? given : given.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), d = x.size(2), n = angles.cos.size(2);
  at::Tensor y = at::empty({tokens, heads, d}, x.options());
  const float *from = x.const_data_ptr<float>(), *cosines = angles.cos.const_data_ptr<float>(), *sines = angles.sin.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  each_row(tokens * heads, d, [&](int64_t row) {
    const int64_t token = row / heads;
    const float *a = from + token * x.stride(0) + row % heads * x.stride(1), *cos = cosines + token * n, *sin = sines + token * n;
    float* out = to + row * d;
    if (halves) {
      for (int64_t i = 0; i < n; ++i) out[i] = a[i] * cos[i] - a[n + i] * sin[i];
      for (int64_t i = 0; i < n; ++i) out[n + i] = a[n + i] * cos[i] + a[i] * sin[i];
    } else {
      for (int64_t i = 0; i < n; ++i) {
        out[2 * i] = a[2 * i] * cos[i] - a[2 * i + 1] * sin[i];
        out[2 * i + 1] = a[2 * i + 1] * cos[i] + a[2 * i] * sin[i];
      }
    }
    for (int64_t i = 2 * n; i < d; ++i) out[i] = a[i];
  });
  return y;
}

at::Tensor Cpu::gated_silu(const at::Tensor& given) const {
  const at::Tensor x = given.contiguous();
  const int64_t rows = x.size(0), width = x.size(1) / 2;
  at::Tensor y = at::empty({rows, width}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  each_row(rows, 4 * width, [&](int64_t row) { kernels().gated_silu(from + 2 * row * width, from + (2 * row + 1) * width, to + row * width, width); });
  return y;
}

}  // namespace pm::ops
