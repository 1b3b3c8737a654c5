// SPDX-License-Identifier: Apache-2.0
// The CUDA backend, except for attention (backend_attention.cpp).
#include "worker/ops/cuda/backend.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>

#include "worker/ops/cuda/activation.h"
#include "worker/ops/cuda/gemv.h"
#include "worker/ops/cuda/norm.h"
#include "worker/ops/cuda/rotary.h"
#include "worker/ops/cuda/sample.h"

namespace pm::ops::cuda {

namespace {

constexpr int64_t few_rows = 32;  // up to here reading the weights four times costs less than a GEMM

bool is_element(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }
Element element(const at::Tensor& x) {
  return x.scalar_type() == at::kHalf ? Element::F16 : x.scalar_type() == at::kBFloat16 ? Element::BF16 : Element::F32;
}

}  // namespace

at::Tensor CudaBackend::linear(const at::Tensor& given, const at::Tensor& weight, const at::Tensor& given_bias) const {
  const bool known = is_element(weight.scalar_type()) && weight.is_contiguous() &&
                     (!given_bias.defined() || is_element(given_bias.scalar_type()));
  if (known && given.size(0) <= few_rows && given.numel() > 0) {
    const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
    at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options());
    Gemv p{.x = address(x),
           .x_stride = x.size(1),
           .x_type = Element::F32,
           .w = address(weight),
           .w_type = element(weight),
           .scales = nullptr,
           .scale_group = 0,
           .bias = address(bias),
           .bias_type = bias.defined() ? element(bias) : Element::F32,
           .y = address(y),
           .y_type = Element::F32,
           .rows = x.size(0),
           .in = x.size(1),
           .out = weight.size(0)};
    gemv(p, stream(x));
    return y;
  }
  if (!known || weight.scalar_type() == at::kFloat || !hooks_.matrix_units)
    return Backend::linear(given, weight, given_bias);
  at::Tensor y = at::mm(given.to(weight.scalar_type()), weight.t(), at::kFloat);
  return given_bias.defined() ? y.add_(given_bias) : y;
}

at::Tensor CudaBackend::int8_linear(const at::Tensor& given, const Int8Matrix& w, const at::Tensor& given_bias) const {
  const int64_t out = w.numbers.size(0), in = w.numbers.size(1);
  const bool known = w.numbers.is_contiguous() && w.scales.is_contiguous() && (w.group % 16 == 0 || w.group >= in) &&
                     (!given_bias.defined() || is_element(given_bias.scalar_type()));
  if (!known || given.size(0) > few_rows || given.numel() == 0) return Backend::int8_linear(given, w, given_bias);
  const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  gemv({.x = address(x),
        .x_stride = in,
        .w = address(w.numbers),
        .w_type = Element::I8,
        .scales = address(w.scales),
        .scale_group = w.group,
        .bias = address(bias),
        .bias_type = bias.defined() ? element(bias) : Element::F32,
        .y = address(y),
        .rows = x.size(0),
        .in = in,
        .out = out},
       stream(x));
  return y;
}

/// With a residual, `given` must be contiguous and is replaced by the sum.
at::Tensor CudaBackend::norm(const at::Tensor& given, const at::Tensor& residual, bool rms,
                             const at::Tensor& given_weight, double weight_offset, const at::Tensor& given_bias,
                             double eps) const {
  const at::Tensor x = given.contiguous(), weight = given_weight.defined() ? given_weight.contiguous() : given_weight;
  const at::Tensor bias = given_bias.defined()
                              ? (weight.defined() ? given_bias.to(weight.scalar_type()) : given_bias).contiguous()
                              : given_bias;
  at::Tensor y = at::empty_like(x);
  const int64_t width = x.size(-1);
  if (x.numel() == 0) return y;
  cuda::norm({.rms = rms,
              .x = address(x),
              .x_stride = width,
              .residual = address(residual),
              .sum = residual.defined() ? address(x) : nullptr,
              .y = address(y),
              .type = Element::F32,
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

at::Tensor CudaBackend::layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                   double eps) const {
  return norm(x, {}, false, weight, 0, bias, eps);
}
at::Tensor CudaBackend::rms_norm(const at::Tensor& x, const at::Tensor& weight, double eps,
                                 double weight_offset) const {
  return norm(x, {}, true, weight, weight_offset, {}, eps);
}

at::Tensor CudaBackend::fused_add_layer_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                             const at::Tensor& bias, double eps) const {
  if (!x.is_contiguous() || !residual.is_contiguous())
    return Backend::fused_add_layer_norm(x, residual, weight, bias, eps);
  return norm(x, residual, false, weight, 0, bias, eps);
}

at::Tensor CudaBackend::fused_add_rms_norm(at::Tensor& x, const at::Tensor& residual, const at::Tensor& weight,
                                           double eps, double weight_offset) const {
  if (!x.is_contiguous() || !residual.is_contiguous())
    return Backend::fused_add_rms_norm(x, residual, weight, eps, weight_offset);
  return norm(x, residual, true, weight, weight_offset, {}, eps);
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
            .type = Element::F32,
            .rows = y.size(0),
            .width = y.size(1)},
           stream(x));
  return y;
}

at::Tensor CudaBackend::sample(at::Tensor given, const SampleBatch& batch) const {
  at::Tensor scores = given.contiguous();
  const int64_t vocabulary = scores.size(1), count = static_cast<int64_t>(batch.sampling.size()),
                edits = static_cast<int64_t>(batch.edits.size());
  // One host-to-device copy holds: sampling [count], rows [count] int64, positions of edits [edits] int64, their
  // factors and their subtrahends [edits] fp32 each.
  constexpr int64_t size = sizeof(RowSampling);
  static_assert(size % 8 == 0);
  at::Tensor host = at::zeros({count * (size + 8) + edits * 16}, at::kByte);
  const auto part = [&](const at::Tensor& bytes, int64_t from, int64_t length, at::ScalarType type) {
    return bytes.narrow(0, from, length).view(type);
  };
  const int64_t rows_at = count * size, places_at = rows_at + count * 8, factors_at = places_at + edits * 8,
                subtrahends_at = factors_at + edits * 4;
  bool own = count == scores.size(0);  // each row is sampled once
  for (int64_t i = 0; i < count; ++i) {
    const ops::RowSampling& how = batch.sampling[static_cast<size_t>(i)];
    const RowSampling row{.temperature = how.temperature,
                          .top_p = how.top_p,
                          .min_p = how.min_p,
                          .top_k = how.top_k,
                          .seed = how.seed,
                          .sequence = how.sequence,
                          .position = how.position,
                          .sample = how.sample};
    std::memcpy(host.mutable_data_ptr<uint8_t>() + i * size, &row, sizeof row);
    reinterpret_cast<int64_t*>(host.mutable_data_ptr<uint8_t>() + rows_at)[i] = batch.rows[static_cast<size_t>(i)];
    own = own && batch.rows[static_cast<size_t>(i)] == i;
  }
  for (int64_t i = 0; i < edits; ++i) {
    const ScoreEdit& edit = batch.edits[static_cast<size_t>(i)];
    uint8_t* bytes = host.mutable_data_ptr<uint8_t>();
    reinterpret_cast<int64_t*>(bytes + places_at)[i] = batch.edit_rows[static_cast<size_t>(i)] * vocabulary + edit.id;
    reinterpret_cast<float*>(bytes + factors_at)[i] = edit.factor;
    reinterpret_cast<float*>(bytes + subtrahends_at)[i] = edit.subtrahend;
  }
  const at::Tensor packed = host.to(scores.device());
  if (edits > 0) {
    at::Tensor flat = scores.view({-1});
    const at::Tensor places = part(packed, places_at, edits * 8, at::kLong);
    const at::Tensor factors = part(packed, factors_at, edits * 4, at::kFloat),
                     subtrahends = part(packed, subtrahends_at, edits * 4, at::kFloat);
    const at::Tensor before = at::index_select(flat, 0, places);
    flat.index_copy_(0, places, at::where(before < 0, before * factors, before / factors) - subtrahends);
  }
  if (!own) scores = at::index_select(scores, 0, part(packed, rows_at, count * 8, at::kLong));
  at::Tensor ids = at::empty({count}, scores.options().dtype(at::kInt));
  cuda::sample({.scores = address<float>(scores),
                .score_stride = vocabulary,
                .sampling = address<RowSampling>(packed),
                .ids = address<int32_t>(ids),
                .rows = count,
                .vocabulary = vocabulary},
               stream(scores));
  return ids.to(at::kLong);
}

at::Tensor CudaBackend::rotary_write(const at::Tensor& given, int64_t heads, const Rotation& rotation,
                                     const at::Tensor& given_slots, at::Tensor& k_cache, at::Tensor& v_cache) const {
  const at::Tensor qkv = given.contiguous(), slots = given_slots.contiguous();
  const int64_t tokens = qkv.size(0), kv_heads = k_cache.size(1), d = k_cache.size(3);
  at::Tensor q = at::empty({tokens, heads, d}, qkv.options());
  if (tokens == 0) return q;
  RotaryWrite p{.qkv = address(qkv),
                .qkv_stride = qkv.size(1),
                .q = address(q),
                .cos = address<float>(rotation.angles.cos),
                .sin = address<float>(rotation.angles.sin)};
  p.n = rotation.angles.cos.defined() ? rotation.angles.cos.size(2) : 0, p.is_neox = rotation.is_neox,
  p.rotate_values = rotation.rotate_values;
  p.slots = address<int64_t>(slots), p.k_cache = address(k_cache), p.v_cache = address(v_cache),
  p.block_stride = k_cache.stride(0), p.cache = element(k_cache);
  p.tokens = tokens, p.heads = heads, p.kv_heads = kv_heads, p.d = d;
  cuda::rotary_write(p, stream(qkv));
  return q;
}

void CudaBackend::write_kv(const at::Tensor& k, const at::Tensor& v, const at::Tensor& given_slots, at::Tensor& k_cache,
                           at::Tensor& v_cache) const {
  if (k.numel() == 0) return;
  const at::Tensor kv = at::cat({k.flatten(1), v.flatten(1)}, 1), slots = given_slots.contiguous();
  RotaryWrite p{.qkv = address(kv), .qkv_stride = kv.size(1)};
  p.slots = address<int64_t>(slots), p.k_cache = address(k_cache), p.v_cache = address(v_cache),
  p.block_stride = k_cache.stride(0), p.cache = element(k_cache);
  p.tokens = k.size(0), p.kv_heads = k.size(1), p.d = k.size(2);
  cuda::rotary_write(p, stream(kv));
}

}  // namespace pm::ops::cuda
