// SPDX-License-Identifier: Apache-2.0
// Linear layers of the CUDA backend: our GEMV for a few rows, else ATen's matrix products (cuBLAS). Both round x to the
// type of 16-bit weights, sum in fp32 and round the result once, so that a row gives the same result, up to the order
// of sums, among few and among many.
#include <ATen/ATen.h>

#include <algorithm>
#include <functional>

#include "contract/widened_tile.h"
#include "worker/ops/cuda/backend.h"
#include "worker/ops/cuda/linear/widen.h"

namespace pm::ops::cuda {

namespace {

/// Rows of x up to which gemv() multiplies 16-bit weights; more rows go to cuBLAS. On an H100 gemv() is the faster of
/// both in every shape of an 8B and a 1B model while it takes one pass, and takes nearly twice as long in two.
constexpr int64_t crossover_rows = max_tensor_core_rows;

/// The same in fp32, whose products are SIMT arithmetic in both.
constexpr int64_t fp32_crossover_rows = 4;

/// The same for quantised weights in 16-bit products. gemv() reads them once for eight rows, while for cuBLAS they are
/// read, written with twice the bytes, and read again: on an H100 four passes take as long as that.
constexpr int64_t quantised_crossover_rows = 3 * max_tensor_core_rows;

bool is_element(at::ScalarType type) { return type == at::kFloat || type == at::kHalf || type == at::kBFloat16; }
bool is_element_or_undefined(const at::Tensor& x) { return !x.defined() || is_element(x.scalar_type()); }
Element element_of(at::ScalarType type) {
  return type == at::kHalf ? Element::F16 : type == at::kBFloat16 ? Element::BF16 : Element::F32;
}

/// Returns x, which is fp32 or of the type of the products where a layer before left it so.
at::Tensor of_type_or_fp32(const at::Tensor& x, at::ScalarType type) {
  return x.scalar_type() == type ? x : x.to(at::kFloat);
}

/// How cuBLAS writes a result: with the bias, rounded once to the type of the products, or in fp32. In fp32 the bias
/// is added afterwards, because cuBLAS takes one of the matrices' type only.
struct Writing {
  at::ScalarType type;
  bool adds_bias;

  Writing(at::ScalarType product, const at::Tensor& bias, at::ScalarType result) {
    const bool same = result == product && (!bias.defined() || bias.scalar_type() == product);
    type = same ? product : at::kFloat;
    adds_bias = same && product != at::kFloat && bias.defined();
  }
  /// Completes what was written.
  at::Tensor finished(at::Tensor y, const at::Tensor& bias, at::ScalarType result) const {
    if (bias.defined() && !adds_bias) y.add_(bias);
    return y.to(result);
  }
};

/// Writes x W^T to y [rows, out], whose rows may lie apart, plus `bias` where it is defined. x and W have one type; y
/// has it too or is fp32, then without a bias.
void multiply_into(at::Tensor y, const at::Tensor& x, const at::Tensor& w, const at::Tensor& bias) {
  if (bias.defined())
    at::addmm_out(y, bias, x, w.t());
  else if (w.scalar_type() == y.scalar_type())
    at::mm_out(y, x, w.t());
  else
    at::mm_out(y, x, w.t(), y.scalar_type());
}

/// Writes rows first .. first + tile.size(0) - 1 of a quantised matrix to `tile` [rows, in], in its type.
using WidenRows = std::function<void(int64_t first, const at::Tensor& tile)>;

/// Returns x W^T + bias for a quantised matrix W of `out` rows, which exists in the type of x for one tile of rows at a
/// time.
at::Tensor multiply_by_tiles(const at::Tensor& x, int64_t out, const at::Tensor& bias, at::ScalarType result,
                             const WidenRows& widen_rows) {
  const int64_t in = x.size(1), rows = widened_tile_rows(out, in * static_cast<int64_t>(x.element_size()));
  const at::Tensor workspace = at::empty({rows, in}, x.options());
  const Writing writing(x.scalar_type(), bias, result);
  at::Tensor y = at::empty({x.size(0), out}, x.options().dtype(writing.type));
  for (int64_t first = 0; first < out; first += rows) {
    const int64_t count = std::min(rows, out - first);
    const at::Tensor tile = workspace.narrow(0, 0, count);
    widen_rows(first, tile);
    multiply_into(y.narrow(1, first, count), x, tile, writing.adds_bias ? bias.narrow(0, first, count) : at::Tensor());
  }
  return writing.finished(y, bias, result);
}

}  // namespace

at::Tensor CudaBackend::run_gemv(const at::Tensor& given, Gemv p, const at::Tensor& given_bias,
                                 at::ScalarType result) const {
  const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
  at::Tensor y = at::empty({x.size(0), p.out}, x.options().dtype(result));
  p.x = address(x);
  p.x_stride = p.in;
  p.x_type = element_of(x.scalar_type());
  p.bias = address(bias);
  p.bias_type = bias.defined() ? element_of(bias.scalar_type()) : Element::F32;
  p.y = address(y);
  p.y_type = element_of(result);
  p.rows = x.size(0);
  p.multiprocessors = hooks_.multiprocessors(x.device());
  gemv(p, stream(x));
  return y;
}

at::ScalarType CudaBackend::activation_type(at::ScalarType compute) const {
  return is_element(compute) ? compute : at::kFloat;
}

at::Tensor CudaBackend::linear(const at::Tensor& given, const at::Tensor& weight, const at::Tensor& bias,
                               at::ScalarType result) const {
  const at::ScalarType type = weight.scalar_type();
  const at::Tensor x = of_type_or_fp32(given, type);
  const bool known = is_element(type) && weight.is_contiguous() && is_element_or_undefined(bias);
  if (known && x.size(0) <= (type == at::kFloat ? fp32_crossover_rows : crossover_rows) && x.numel() > 0)
    return run_gemv(x, {.w = address(weight), .w_type = element_of(type), .in = weight.size(1), .out = weight.size(0)},
                    bias, result);
  if (!is_element(type) || type == at::kFloat) return Backend::linear(x, weight, bias, result);
  const Writing writing(type, bias, result);
  at::Tensor y = at::empty({x.size(0), weight.size(0)}, x.options().dtype(writing.type));
  multiply_into(y, x.to(type), weight, writing.adds_bias ? bias : at::Tensor());
  return writing.finished(y, bias, result);
}

at::Tensor CudaBackend::quantized_linear(const at::Tensor& given, const QuantizedMatrix& w, const at::Tensor& bias,
                                         at::ScalarType result) const {
  const int64_t out = w.out(), in = w.layout.in, group = w.layout.group;
  const at::ScalarType type = w.compute_type;
  const at::Tensor x = of_type_or_fp32(given, type);
  if (w.layout.bits != 8 || w.layout.input_bits != 0 || !is_element(type) || w.codes.stride(1) != 1 ||
      w.scales.stride(1) != 1 || x.numel() == 0)
    return Backend::quantized_linear(x, w, bias, result);
  const bool grouped = group >= in || (group % 16 == 0 && in <= max_grouped_inputs),
             few = x.size(0) <= (type == at::kFloat ? fp32_crossover_rows : quantised_crossover_rows);
  if (grouped && few && is_element_or_undefined(bias))
    return run_gemv(x,
                    {.w = address(w.codes),
                     .w_stride = w.codes.stride(0),
                     .w_type = Element::I8,
                     .scales = address(w.scales),
                     .scale_stride = w.scales.stride(0),
                     .scale_group = group,
                     .compute = element_of(type),
                     .in = in,
                     .out = out},
                    bias, result);
  return multiply_by_tiles(x.to(type), out, bias, result, [&](int64_t first, const at::Tensor& tile) {
    const at::Tensor numbers = w.codes.narrow(0, first, tile.size(0)), scales = w.scales.narrow(0, first, tile.size(0));
    widen({.numbers = address(numbers),
           .stride = w.codes.stride(0),
           .scales = address(scales),
           .scale_stride = w.scales.stride(0),
           .scale_group = group,
           .out = address(tile),
           .out_type = element_of(type),
           .rows = tile.size(0),
           .in = in},
          stream(x));
  });
}

}  // namespace pm::ops::cuda
