// SPDX-License-Identifier: Apache-2.0
// The CUDA backend, except for attention (backend_attention.cpp), linear layers (backend_linear.cpp) and sampling
// (backend_sample.cpp).
#include "worker/ops/cuda/backend.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/ops/cuda/activation.h"
#include "worker/ops/cuda/norm.h"
#include "worker/ops/cuda/rotary.h"

namespace pm::ops::cuda {

namespace {

bool is_element(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }
Element element(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? Element::F16 : x.scalar_type() == at::kBFloat16 ? Element::BF16 : Element::F32;
}

/// Returns whether the kernel takes the norm's parameters as they lie.
bool is_kernel_norm(const std::optional<ops::HeadNorm>& norm) {
  if (!norm) return true;
  const auto is_taken = [](const at::Tensor& x) {
    return !x.defined() || (is_element(x.scalar_type()) && x.is_contiguous());
  };
  return is_taken(norm->weight) && is_taken(norm->bias) &&
         (!norm->weight.defined() || !norm->bias.defined() || norm->weight.scalar_type() == norm->bias.scalar_type());
}

}  // namespace

HeadNorm CudaBackend::head_norm(const std::optional<ops::HeadNorm>& norm) const {
  if (!norm) return {};
  return {.active = true,
          .rms = norm->is_rms,
          .weight = address(norm->weight),
          .bias = norm->is_rms ? nullptr : address(norm->bias),
          .parameters = norm->weight.defined() ? element(norm->weight)
                        : norm->bias.defined() ? element(norm->bias)
                                               : Element::F32,
          .eps = static_cast<float>(norm->eps),
          .weight_offset = norm->is_rms ? static_cast<float>(norm->weight_offset) : 0};
}

at::Tensor CudaBackend::norm(at::Tensor& given, const at::Tensor& residual, bool rms, const at::Tensor& given_weight,
                             double weight_offset, const at::Tensor& given_bias, double eps,
                             at::ScalarType result) const {
  const at::Tensor x = given.contiguous(), weight = given_weight.defined() ? given_weight.contiguous() : given_weight;
  const at::Tensor bias = given_bias.defined()
                              ? (weight.defined() ? given_bias.to(weight.scalar_type()) : given_bias).contiguous()
                              : given_bias;
  at::Tensor y = at::empty(x.sizes(), x.options().dtype(result));
  if (residual.defined() && residual.scalar_type() != x.scalar_type()) given = at::empty_like(residual);
  const int64_t width = x.size(-1);
  if (x.numel() == 0) return y;
  cuda::norm({.rms = rms,
              .x = address(x),
              .x_stride = width,
              .x_type = element(x),
              .residual = address(residual),
              .sum = residual.defined() ? address(given) : nullptr,
              .sum_type = element(residual.defined() ? residual : x),
              .y = address(y),
              .y_type = element(y),
              .weight = address(weight),
              .bias = address(bias),
              .parameters = weight.defined() ? element(weight)
                            : bias.defined() ? element(bias)
                                             : Element::F32,
              .eps = static_cast<float>(eps),
              .weight_offset = static_cast<float>(weight_offset),
              .rows = x.numel() / width,
              .width = width},
             stream(x));
  return y;
}

at::Tensor CudaBackend::layer_norm(const at::Tensor& given, const at::Tensor& weight, const at::Tensor& bias,
                                   double eps, at::ScalarType result) const {
  at::Tensor x = given;
  return norm(x, {}, false, weight, 0, bias, eps, result);
}
at::Tensor CudaBackend::rms_norm(const at::Tensor& given, const at::Tensor& weight, double eps, double weight_offset,
                                 at::ScalarType result) const {
  at::Tensor x = given;
  return norm(x, {}, true, weight, weight_offset, {}, eps, result);
}

at::Tensor CudaBackend::fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                             const at::Tensor& bias, double eps, at::ScalarType result) const {
  if (!x.is_contiguous() || !residual.is_contiguous())
    return Backend::fused_add_layer_norm(x, residual, weight, bias, eps, result);
  return norm(x, residual, false, weight, 0, bias, eps, result);
}

at::Tensor CudaBackend::fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                           double eps, double weight_offset, at::ScalarType result) const {
  if (!x.is_contiguous() || !residual.is_contiguous())
    return Backend::fused_add_rms_norm(x, residual, weight, eps, weight_offset, result);
  return norm(x, residual, true, weight, weight_offset, {}, eps, result);
}

Angles CudaBackend::rotary_angles(const at::Tensor& given, const at::Tensor& frequencies, double factor) const {
  const at::Tensor positions = given.contiguous();
  const int64_t tokens = positions.size(0), n = frequencies.size(0);
  Angles angles{at::empty({tokens, 1, n}, frequencies.options()), at::empty({tokens, 1, n}, frequencies.options())};
  if (tokens == 0) return angles;
  cuda::rotary_angles({.positions = address<int64_t>(positions),
                       .frequencies = address<float>(frequencies),
                       .factor = static_cast<float>(factor),
                       .cos = address<float>(angles.cos),
                       .sin = address<float>(angles.sin),
                       .tokens = tokens,
                       .n = n},
                      stream(positions));
  return angles;
}

at::Tensor CudaBackend::rotate(const at::Tensor& given, const Angles& angles, bool is_neox) const {
  const at::Tensor x = given.contiguous();
  const int64_t tokens = x.size(0), heads = x.size(1), d = x.size(2);
  at::Tensor y = at::empty_like(x);
  if (x.numel() == 0) return y;
  RotaryWrite p{.qkv = address(x),
                .qkv_stride = heads * d,
                .type = element(x),
                .q = address(y),
                .cos = address<float>(angles.cos),
                .sin = address<float>(angles.sin),
                .n = angles.cos.size(2),
                .is_neox = is_neox};
  p.tokens = tokens, p.heads = heads, p.d = d;
  cuda::rotary_write(p, stream(x));
  return y;
}

at::Tensor CudaBackend::silu_and_mul(const at::Tensor& given) const {
  const at::Tensor x = given.contiguous();
  at::Tensor y = at::empty({x.size(0), x.size(1) / 2}, x.options());
  if (y.numel() == 0) return y;
  activate({.activation = Activation::Silu,
            .gated = true,
            .x = address(x),
            .y = address(y),
            .type = element(x),
            .rows = y.size(0),
            .width = y.size(1)},
           stream(x));
  return y;
}

at::Tensor CudaBackend::rotary_write(const at::Tensor& given, int64_t heads, const ops::HeadNorms& norms,
                                     const Rotation& rotation, const at::Tensor& given_slots, at::Tensor& k_cache,
                                     at::Tensor& v_cache) const {
  if (!is_kernel_norm(norms.query) || !is_kernel_norm(norms.key))
    return Backend::rotary_write(given, heads, norms, rotation, given_slots, k_cache, v_cache);
  const at::Tensor qkv = given.contiguous(), slots = given_slots.contiguous();
  const int64_t tokens = qkv.size(0), kv_heads = k_cache.size(1), d = k_cache.size(3);
  at::Tensor q = at::empty({tokens, heads, d}, qkv.options());
  if (tokens == 0) return q;
  RotaryWrite p{.qkv = address(qkv),
                .qkv_stride = qkv.size(1),
                .type = element(qkv),
                .q = address(q),
                .cos = address<float>(rotation.angles.cos),
                .sin = address<float>(rotation.angles.sin)};
  p.n = rotation.angles.cos.defined() ? rotation.angles.cos.size(2) : 0, p.is_neox = rotation.is_neox,
  p.rotate_values = rotation.rotate_values;
  p.slots = address<int64_t>(slots), p.k_cache = address(k_cache), p.v_cache = address(v_cache),
  p.block_stride = k_cache.stride(0), p.cache = element(k_cache);
  p.tokens = tokens, p.heads = heads, p.kv_heads = kv_heads, p.d = d;
  p.query_norm = head_norm(norms.query), p.key_norm = head_norm(norms.key);
  cuda::rotary_write(p, stream(qkv));
  return q;
}

void CudaBackend::write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& given_slots, at::Tensor& k_cache,
                           at::Tensor& v_cache) const {
  if (k.numel() == 0) return;
  const at::Tensor kv = at::cat({k.flatten(1), v.flatten(1)}, 1), slots = given_slots.contiguous();
  RotaryWrite p{.qkv = address(kv), .qkv_stride = kv.size(1), .type = element(kv)};
  p.slots = address<int64_t>(slots), p.k_cache = address(k_cache), p.v_cache = address(v_cache),
  p.block_stride = k_cache.stride(0), p.cache = element(k_cache);
  p.tokens = k.size(0), p.kv_heads = k.size(1), p.d = k.size(2);
  cuda::rotary_write(p, stream(kv));
}

}  // namespace pm::ops::cuda
