// See backend.h.
#include "worker/ops/cuda/backend.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/ops/cuda/activation.h"
#include "worker/ops/cuda/gemv.h"
#include "worker/ops/cuda/norm.h"
#include "worker/ops/cuda/rotary.h"

namespace pm::ops::cuda {

namespace {

constexpr int64_t few_rows = 32;   // up to here four passes over the weights cost less than a matrix product

bool is_element(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }
Element element(const at::Tensor& x) { return x.scalar_type() == at::kHalf ? Element::F16 : x.scalar_type() == at::kBFloat16 ? Element::BF16 : Element::F32; }

}  // namespace

at::Tensor Kernels::linear(const at::Tensor& given, const at::Tensor& weight, const at::Tensor& given_bias) const {
  const bool known = is_element(weight.scalar_type()) && weight.is_contiguous() && (!given_bias.defined() || is_element(given_bias.scalar_type()));
  if (known && given.size(0) <= few_rows && given.numel() > 0) {
    const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    Gemv p{.x = address(x), .x_stride = x.size(1), .x_type = Element::F32, .w = address(weight), .w_type = element(weight), .scales = nullptr, .scale_group = 0, .bias = address(bias),
           .bias_type = bias.defined() ? element(bias) : Element::F32, .y = address(y), .y_type = Element::F32, .rows = x.size(0), .in = x.size(1), .out = weight.size(0)};
    gemv(p, stream(x));
    return y;
  }
  if (!known || weight.scalar_type() == at::kFloat || !host_.matrix_units) return Backend::linear(given, weight, given_bias);
  at::Tensor y = at::mm(given.to(weight.scalar_type()), weight.t(), at::kFloat);
  return given_bias.defined() ? y.add_(given_bias) : y;
}

at::Tensor Kernels::norm(const at::Tensor& given, bool rms, const at::Tensor& given_gain, double centre, const at::Tensor& given_bias, double eps) const {
  const at::Tensor x = given.contiguous(), gain = given_gain.defined() ? given_gain.contiguous() : given_gain;
  const at::Tensor bias = given_bias.defined() ? (gain.defined() ? given_bias.to(gain.scalar_type()) : given_bias).contiguous() : given_bias;
  at::Tensor y = at::empty_like(x);
  const int64_t width = x.size(-1);
  if (x.numel() == 0) return y;
  cuda::norm({.rms = rms, .x = address(x), .x_stride = width, .residual = nullptr, .sum = nullptr, .y = address(y), .type = Element::F32, .gain = address(gain), .bias = address(bias),
              .parameters = gain.defined() ? element(gain) : bias.defined() ? element(bias) : Element::F32, .eps = static_cast<float>(eps), .centre = static_cast<float>(centre),
              .rows = x.numel() / width, .width = width}, stream(x));
  return y;
}

at::Tensor Kernels::layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps) const { return norm(x, false, gain, 0, bias, eps); }
at::Tensor Kernels::rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, double centre) const { return norm(x, true, gain, centre, {}, eps); }

Angles Kernels::rotary_angles(const at::Tensor& given, const at::Tensor& frequencies, double factor) const {
  const at::Tensor positions = given.contiguous();
  const int64_t tokens = positions.size(0), n = frequencies.size(0);
  Angles angles{at::empty({tokens, 1, n}, frequencies.options()), at::empty({tokens, 1, n}, frequencies.options())};
  if (tokens == 0) return angles;
  cuda::rotary_angles({.positions = address<int64_t>(positions), .frequencies = address<float>(frequencies), .factor = static_cast<float>(factor), .cos = address<float>(angles.cos),
                       .sin = address<float>(angles.sin), .tokens = tokens, .n = n}, stream(positions));
  return angles;
}

at::Tensor Kernels::rotate(const at::Tensor& given, const Angles& angles, bool halves) const {
  const at::Tensor x = given.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), d = x.size(2);
  at::Tensor y = at::empty_like(x);
  if (x.numel() == 0) return y;
  RotaryWrite p{.qkv = address(x), .qkv_stride = heads * d, .q = address(y), .cos = address<float>(angles.cos), .sin = address<float>(angles.sin), .n = angles.cos.size(2), .halves = halves};
  p.tokens = tokens, p.heads = heads, p.d = d;
  rotary_write(p, stream(x));
  return y;
}

at::Tensor Kernels::gated_silu(const at::Tensor& given) const {
  const at::Tensor x = given.contiguous();
  at::Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options());
  if (y.numel() == 0) return y;
  activate({.activation = Activation::Silu, .gated = true, .x = address(x), .y = address(y), .type = Element::F32, .rows = y.size(0), .width = y.size(1)}, stream(x));
  return y;
}

void Kernels::write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& given_slots, at::Tensor& k_cache, at::Tensor& v_cache) const {
  if (k.numel() == 0) return;
  const at::Tensor kv = at::cat({k.flatten(1), v.flatten(1)}, 1), slots = given_slots.contiguous();
  RotaryWrite p{.qkv = address(kv), .qkv_stride = kv.size(1)};
  p.slots = address<int64_t>(slots), p.k_cache = address(k_cache), p.v_cache = address(v_cache), p.block_stride = k_cache.stride(0), p.cache = element(k_cache);
  p.tokens = k.size(0), p.kv_heads = k.size(1), p.d = k.size(2);
  rotary_write(p, stream(kv));
}

}  // namespace pm::ops::cuda
