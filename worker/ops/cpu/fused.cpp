// SPDX-License-Identifier: Apache-2.0
// CPU norms, rotary embedding and SwiGLU activation.

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>

#include <algorithm>
#include <cmath>

#include "worker/ops/cpu/backend.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/kv_codes.h"

namespace pm::ops {

namespace {

constexpr int64_t elements_per_chunk = int64_t{1} << 15;  // takes some microseconds
constexpr int64_t max_head_dim = 512;                     // of rotary_write, which has heads on the stack

/// Calls row(i) for all rows, on several threads where the rows are large enough.
template <typename Row>
void each_row(int64_t rows, int64_t width, Row&& row) {
  const int64_t chunks = std::clamp<int64_t>(rows * width / elements_per_chunk, 1, std::max<int64_t>(1, rows));
  thread_pool().parallel_for(chunks, [&](int64_t chunk) {
    for (int64_t i = rows * chunk / chunks; i < rows * (chunk + 1) / chunks; ++i) row(i);
  });
}

/// Sums f(x[i]) in double, in sixteen running sums, which vectorise. Later layers amplify rounding errors made here.
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

/// Computes y = (x - shift) * scale * (weight_offset + weight) + bias for one row, rounded once; weight and bias are of
/// type T or nullptr. One rounding instead of four keeps sharp softmaxes of later layers close to exact arithmetic, and
/// costs little compared with the matrix products.
template <typename T>
void normalise(const float* x, float* y, int64_t width, double shift, double scale, const T* weight,
               double weight_offset, const T* bias) {
  const auto each = [&](auto&& finish) {
    for (int64_t i = 0; i < width; ++i) y[i] = static_cast<float>(finish((x[i] - shift) * scale, i));
  };
  const auto weighted = [weight, weight_offset](double value, int64_t i) {
    return value * (weight_offset + static_cast<float>(weight[i]));
  };
  const auto biased = [bias](double value, int64_t i) { return value + static_cast<float>(bias[i]); };
  if (weight && bias)
    each([&](double value, int64_t i) { return biased(weighted(value, i), i); });
  else if (weight)
    each(weighted);
  else if (bias)
    each(biased);
  else
    each([](double value, int64_t) { return value; });
}

/// Adds `residual`, where it is defined, to the rows of `given` first; `given` must be contiguous then.
template <typename Statistics>
at::Tensor norm(const at::Tensor& given, const at::Tensor& residual, const at::Tensor& given_weight,
                double weight_offset, const at::Tensor& given_bias, Statistics&& statistics) {
  const at::Tensor x = given.contiguous();
  at::Tensor y = at::empty_like(x);
  const at::ScalarType type = given_weight.defined() ? given_weight.scalar_type()
                              : given_bias.defined() ? given_bias.scalar_type()
                                                     : at::kFloat;
  const at::Tensor weight = given_weight.defined() ? given_weight.contiguous() : given_weight,
                   bias = given_bias.defined() ? given_bias.to(type).contiguous() : given_bias;
  const int64_t width = x.size(-1), rows = width == 0 ? 0 : x.numel() / width;
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "norm", [&] {
    const scalar_t* weights = weight.defined() ? weight.const_data_ptr<scalar_t>() : nullptr;
    const scalar_t* biases = bias.defined() ? bias.const_data_ptr<scalar_t>() : nullptr;
    const float* from = x.const_data_ptr<float>();
    const float* added = residual.defined() ? residual.const_data_ptr<float>() : nullptr;
    float* to = y.mutable_data_ptr<float>();
    each_row(rows, width, [&](int64_t row) {
      if (added) {
        float* sum = const_cast<float*>(from) + row * width;  // the caller passes x for modification
        for (int64_t i = 0; i < width; ++i) sum[i] += added[row * width + i];
      }
      const auto [shift, scale] = statistics(from + row * width, width);
      normalise(from + row * width, to + row * width, width, shift, scale, weights, weight_offset, biases);
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

/// Computes the norm of one head's vector x [d], as layer_norm() and rms_norm() do.
template <typename T>
void norm_head(const HeadNorm& norm, const float* x, float* y, int64_t d) {
  const T* weight = norm.weight.defined() ? norm.weight.const_data_ptr<T>() : nullptr;
  if (norm.is_rms) {
    const auto [shift, scale] = rms_statistics(norm.eps)(x, d);
    return normalise<T>(x, y, d, shift, scale, weight, norm.weight_offset, nullptr);
  }
  const auto [shift, scale] = layer_statistics(norm.eps)(x, d);
  normalise<T>(x, y, d, shift, scale, weight, 0, norm.bias.defined() ? norm.bias.const_data_ptr<T>() : nullptr);
}

/// A norm of heads with the function for the type of its parameters; nullptr: no norm.
struct TypedHeadNorm {
  HeadNorm norm;
  void (*compute)(const HeadNorm&, const float* x, float* y, int64_t d) = nullptr;

  explicit TypedHeadNorm(const std::optional<HeadNorm>& given) {
    if (!given) return;
    norm = *given;
    const at::ScalarType type = norm.weight.defined() ? norm.weight.scalar_type()
                                : norm.bias.defined() ? norm.bias.scalar_type()
                                                      : at::kFloat;
    if (norm.weight.defined()) norm.weight = norm.weight.contiguous();
    if (norm.bias.defined()) norm.bias = norm.bias.to(type).contiguous();
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, type, "head_norm",
                                    [&] { compute = &norm_head<scalar_t>; });
  }
};

/// Rotates pairs of the first 2 n elements of x [d]; the other elements are copied.
void rotate_head(const float* x, const float* cos, const float* sin, int64_t n, int64_t d, bool is_neox, float* y) {
  if (is_neox) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * cos[i] - x[n + i] * sin[i];
    for (int64_t i = 0; i < n; ++i) y[n + i] = x[n + i] * cos[i] + x[i] * sin[i];
  } else {
    for (int64_t i = 0; i < n; ++i) {
      y[2 * i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
      y[2 * i + 1] = x[2 * i + 1] * cos[i] + x[2 * i] * sin[i];
    }
  }
  for (int64_t i = 2 * n; i < d; ++i) y[i] = x[i];
}

}  // namespace

at::Tensor CpuBackend::layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps,
                                  at::ScalarType) const {
  return norm(x, {}, weight, 0, bias, layer_statistics(eps));
}
at::Tensor CpuBackend::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps, double weight_offset,
                                at::ScalarType) const {
  return norm(x, {}, weight, weight_offset, {}, rms_statistics(eps));
}

at::Tensor CpuBackend::fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                            const at::Tensor& bias, double eps, at::ScalarType result) const {
  if (!x.is_contiguous() || !residual.is_contiguous())
    return Backend::fused_add_layer_norm(x, residual, weight, bias, eps, result);
  return norm(x, residual, weight, 0, bias, layer_statistics(eps));
}

at::Tensor CpuBackend::fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                          double eps, double weight_offset, at::ScalarType result) const {
  if (!x.is_contiguous() || !residual.is_contiguous())
    return Backend::fused_add_rms_norm(x, residual, weight, eps, weight_offset, result);
  return norm(x, residual, weight, weight_offset, {}, rms_statistics(eps));
}

Angles CpuBackend::rotary_angles(const at::Tensor& given, const at::Tensor& frequencies, double factor) const {
  const at::Tensor positions = given.contiguous();
  const int64_t tokens = positions.size(0), n = frequencies.size(0);
  Angles angles{at::empty({tokens, 1, n}, at::kFloat), at::empty({tokens, 1, n}, at::kFloat)};
  const int64_t* position = positions.const_data_ptr<int64_t>();
  const float* frequency = frequencies.const_data_ptr<float>();
  float *cos = angles.cos.mutable_data_ptr<float>(), *sin = angles.sin.mutable_data_ptr<float>();
  each_row(tokens, 16 * n, [&](int64_t token) {  // a cosine costs about as much as 16 elements
    for (int64_t i = 0; i < n; ++i) {
      const float turn = static_cast<float>(position[token]) * frequency[i];
      cos[token * n + i] = std::cos(turn) * static_cast<float>(factor);
      sin[token * n + i] = std::sin(turn) * static_cast<float>(factor);
    }
  });
  return angles;
}

at::Tensor CpuBackend::rotate(const at::Tensor& given, const Angles& angles, bool is_neox) const {
  const at::Tensor x = given.stride(2) == 1 ? given : given.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), d = x.size(2), n = angles.cos.size(2);
  at::Tensor y = at::empty({tokens, heads, d}, x.options());
  const float *from = x.const_data_ptr<float>(), *cosines = angles.cos.const_data_ptr<float>(),
              *sines = angles.sin.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  each_row(tokens * heads, d, [&](int64_t row) {
    const int64_t token = row / heads;
    const float *a = from + token * x.stride(0) + row % heads * x.stride(1), *cos = cosines + token * n,
                *sin = sines + token * n;
    rotate_head(a, cos, sin, n, d, is_neox, to + row * d);
  });
  return y;
}

at::Tensor CpuBackend::rotary_write(const at::Tensor& given, int64_t heads, const HeadNorms& norms,
                                    const Rotation& rotation, const at::Tensor& given_slots, at::Tensor& k_cache,
                                    at::Tensor& v_cache) const {
  if (head_dim(k_cache) > max_head_dim)
    return Backend::rotary_write(given, heads, norms, rotation, given_slots, k_cache, v_cache);
  const at::Tensor qkv = given.contiguous(), slots = given_slots.contiguous();
  const int64_t tokens = qkv.size(0), kv_heads = k_cache.size(1), d = head_dim(k_cache), vectors = heads + 2 * kv_heads,
                n = rotation.angles.cos.defined() ? rotation.angles.cos.size(2) : 0;
  const TypedHeadNorm query_norm(norms.query), key_norm(norms.key), no_norm(std::nullopt);
  at::Tensor q = at::empty({tokens, heads, d}, qkv.options());
  const float *from = qkv.const_data_ptr<float>(),
              *cosines = n > 0 ? rotation.angles.cos.const_data_ptr<float>() : nullptr,
              *sines = n > 0 ? rotation.angles.sin.const_data_ptr<float>() : nullptr;
  const int64_t* slot = slots.const_data_ptr<int64_t>();
  float* queries = q.mutable_data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND3(at::kHalf, at::kBFloat16, at::kChar, k_cache.scalar_type(), "rotary_write", [&] {
    scalar_t *keys = k_cache.mutable_data_ptr<scalar_t>(), *values = v_cache.mutable_data_ptr<scalar_t>();
    each_row(tokens * vectors, 4 * d, [&](int64_t row) {
      const int64_t token = row / vectors, head = row % vectors;
      const bool is_query = head < heads, is_value = head >= heads + kv_heads;
      const TypedHeadNorm& norm = is_query ? query_norm : is_value ? no_norm : key_norm;
      float normed[max_head_dim], turned[max_head_dim];
      const float* x = from + row * d;
      if (norm.compute) {
        norm.compute(norm.norm, x, normed, d);
        x = normed;
      }
      const int64_t pairs = is_value && !rotation.rotate_values ? 0 : n;
      if (is_query)
        return rotate_head(x, cosines + token * n, sines + token * n, pairs, d, rotation.is_neox,
                           queries + (token * heads + head) * d);
      if (pairs > 0) {
        rotate_head(x, cosines + token * n, sines + token * n, pairs, d, rotation.is_neox, turned);
        x = turned;
      }
      const at::Tensor& cache = is_value ? v_cache : k_cache;
      scalar_t* block = (is_value ? values : keys) + slot[token] / block_tokens * cache.stride(0) +
                        (head - heads - (is_value ? kv_heads : 0)) * cache.stride(1);
      write_vector(x, d, block, slot[token] % block_tokens);
    });
  });
  return q;
}

at::Tensor CpuBackend::silu_and_mul(const at::Tensor& given) const {
  const at::Tensor x = given.contiguous();
  const int64_t rows = x.size(0), width = x.size(1) / 2;
  at::Tensor y = at::empty({rows, width}, x.options());
  const float* from = x.const_data_ptr<float>();
  float* to = y.mutable_data_ptr<float>();
  each_row(rows, 4 * width, [&](int64_t row) {
    kernels().silu_and_mul(from + 2 * row * width, from + (2 * row + 1) * width, to + row * width, width);
  });
  return y;
}

}  // namespace pm::ops
