// SPDX-License-Identifier: Apache-2.0
// CPU linear layers. A few rows of x with codes, in models of 16 bits: integers, on CPUs with AVX2 or AVX-512 VNNI. A
// model in BF16 on a CPU whose vector units multiply bf16 numbers: those, for any number of rows. Otherwise a few rows
// of x: kernels that read the weights once as they are stored. Many rows: the matrix unit, for weights of fewer than 32
// bits where the CPU has one, or the vector units, or on other CPUs ATen's GEMM, for which kernels widen codes.
#include <ATen/ATen.h>

#include "worker/ops/cpu/backend.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/output_chunks.h"
#include "worker/ops/cpu/packed_linear.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/cpu/tiled_linear.h"
#include "worker/ops/cpu/types.h"

namespace pm::ops {

namespace {

/// Returns up to how many rows the products that read the weights once are faster than those of many rows
/// (bench/gemv.sh).
int64_t most_rows(Element weights) {
  if (kernels().tiles && weights != Element::F32) return kernels().tiled_rows[weights == Element::BF16 ? 0 : 1] - 1;
  if (weights == Element::F32) return kernels().fp32_rows;
  return weights == Element::F16 || weights == Element::BF16 ? kernels().half_rows : kernels().code_rows;
}

/// `whole` describes the weights: type, w, in, out and scales.
at::Tensor few_rows(const at::Tensor& given, Gemv whole, const at::Tensor& given_bias, int64_t row_bytes) {
  const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
  const int64_t rows = x.size(0), out = whole.out, in = whole.in;
  at::Tensor y = at::empty({rows, out}, x.options());
  whole.x = x.const_data_ptr<float>();
  whole.y = y.mutable_data_ptr<float>();
  ThreadPool& threads = thread_pool();
  const OutputChunks chunks(out, row_bytes, threads.threads());
  const int64_t groups = (rows + max_gemv_rows - 1) /
                         max_gemv_rows;  // of about equal size; a chunk's weights stay in cache between groups
  threads.parallel_for(chunks.count(), [&](int64_t chunk) {
    Gemv part = whole;
    part.first = chunks.first(chunk);
    part.last = chunks.first(chunk + 1);
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = rows * group / groups;
      part.rows = rows * (group + 1) / groups - begin;
      part.x = whole.x + begin * in;
      part.y = whole.y + begin * out;
      kernels().gemv(part);
    }
    add_bias(whole.y, bias, rows, out, part.first, part.last);
  });
  return y;
}

constexpr int64_t tile_bytes = int64_t{1} << 20;  // of widened codes; a tile stays in the L2 cache

/// `codes` describes the weights, which are widened tile by tile.
at::Tensor many_rows(const at::Tensor& x, Gemv codes, const at::Tensor& bias) {
  const int64_t out = codes.out, in = codes.in, rows = std::max<int64_t>(16, tile_bytes / std::max<int64_t>(1, 4 * in)),
                share = 8;
  const at::Tensor tile = at::empty({std::min(rows, out), in}, x.options());
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  for (int64_t first = 0; first < out; first += rows) {
    const int64_t count = std::min(rows, out - first);
    thread_pool().parallel_for((count + share - 1) / share, [&](int64_t i) {
      Gemv part = codes;
      part.first = first + i * share;
      part.last = std::min(part.first + share, first + count);
      kernels().widen(part, tile.mutable_data_ptr<float>() + i * share * in);
    });
    at::Tensor target = y.narrow(1, first, count);
    at::mm_out(target, x, tile.narrow(0, 0, count).t());
  }
  if (bias.defined()) y.add_(bias);
  return y;
}

/// `whole` describes the weights, of which a row has `row_bytes` bytes, of a model that computes in `type`. Returns an
/// undefined tensor where ATen's GEMM is what there is.
at::Tensor product(const at::Tensor& x, const Gemv& whole, at::ScalarType type, const at::Tensor& bias,
                   int64_t row_bytes) {
  const Kernels& of = kernels();
  const PackedProducts* coded = of.coded_products[whole.type == Element::I4 ? 1 : 0];
  if (type != at::kFloat && coded && whole.group == 32 && x.size(0) <= coded_rows)
    return packed_linear(x, whole, bias, *coded);
  if (type == at::kBFloat16 && of.bf16_products) return packed_linear(x, whole, bias, *of.bf16_products);
  if (x.size(0) <= most_rows(whole.type))
    return of.few_products && whole.group == 0 ? packed_linear(x, whole, bias, *of.few_products)
                                               : few_rows(x, whole, bias, row_bytes);
  if (whole.type != Element::F32 && of.tiles) return tiled_linear(x, whole, bias);
  return of.fp32_products ? packed_linear(x, whole, bias, *of.fp32_products) : at::Tensor();
}

}  // namespace

bool CpuBackend::rounds_inputs(at::ScalarType weight) const {
  return weight == at::kBFloat16 && kernels().bf16_products;
}

std::optional<int64_t> CpuBackend::rows_of_equal_bits(at::ScalarType compute, bool as_codes) const {
  int64_t rows = most_rows(Element::F32);  // models of other types have some of these weights too
  if (!rounds_inputs(compute)) rows = std::min(rows, most_rows(as_codes ? Element::I8 : element(compute)));
  if (as_codes && compute != at::kFloat && kernels().coded_products[0]) rows = std::min(rows, coded_rows);
  return rows;
}

at::Tensor CpuBackend::linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              at::ScalarType result) const {
  const bool known = is_element(weight.scalar_type()) && (!bias.defined() || is_element(bias.scalar_type()));
  if (!known || !weight.is_contiguous() || x.numel() == 0) return Backend::linear(x, weight, bias, result);
  const Gemv whole = described(weight);
  const at::Tensor y = product(x, whole, weight.scalar_type(), bias, whole.in * weight.element_size());
  return y.defined() ? y : Backend::linear(x, weight, bias, result);
}

at::Tensor CpuBackend::quantized_linear(const at::Tensor& given, const QuantizedMatrix& w, const at::Tensor& bias,
                                        at::ScalarType /*result*/) const {
  const Gemv whole = described(w);
  const bool known = given.numel() > 0 && (!bias.defined() || is_element(bias.scalar_type())),
             rounds = w.layout.input_bits == 8;
  if (const PackedProducts* of = kernels().integer_products; rounds && known && of && whole.in <= most_integer_inputs)
    return packed_linear(given, whole, bias, *of);
  const at::Tensor x = rounds && known ? rounded_inputs(given) : given;
  const at::Tensor y = known ? product(x, whole, w.compute_type, bias, w.layout.code_bytes()) : at::Tensor();
  return y.defined() ? y : many_rows(x, whole, bias);
}

const Backend& cpu_backend() {
  static const CpuBackend cpu;
  return cpu;
}

}  // namespace pm::ops
