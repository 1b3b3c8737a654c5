// SPDX-License-Identifier: Apache-2.0
// CPU linear layers. A few rows of x: our own kernels, which read the weights once as they are stored, on the thread
// pool. Many rows: the matrix unit, for weights of fewer than 32 bits where the CPU has one; otherwise ATen's GEMM,
// which reuses loaded data better, and for which our kernels widen codes.
#include <ATen/ATen.h>

#include "worker/ops/cpu/backend.h"
#include "worker/ops/cpu/kernels.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/cpu/tiled_linear.h"
#include "worker/ops/cpu/types.h"

namespace pm::ops {

namespace {

constexpr int64_t chunk_bytes = int64_t{64}
                                << 10;  // of weights: some microseconds, far more than the cost of taking a chunk

/// Returns up to how many rows our kernel is faster than the matrix unit, or than ATen's GEMM, for which 16-bit weights
/// have to be widened by ATen (bench/gemv.sh). Codes are widened by our own kernel, at a price that leaves them where
/// fp32 weights are.
int64_t most_rows(at::ScalarType weights) {
  if (kernels().tiles && weights != at::kFloat) return kernels().tiled_rows[weights == at::kBFloat16 ? 0 : 1] - 1;
  return weights == at::kHalf || weights == at::kBFloat16 ? kernels().half_rows : kernels().fp32_rows;
}

/// Splits the rows of a matrix into chunks: one large part for each thread, read as a stream, then small ones that
/// balance the threads.
struct Chunks {
  int64_t rows, large, large_rows, small, small_rows;
  Chunks(int64_t all, int64_t row_bytes, int threads)
      : rows(all),
        large(0),
        large_rows(0),
        small_rows(12 * std::max<int64_t>(1, chunk_bytes / (12 * std::max<int64_t>(1, row_bytes)))) {
    if (threads > 1 && rows >= 8 * threads * small_rows) large = threads, large_rows = rows * 3 / 4 / threads / 12 * 12;
    small = (rows - large * large_rows + small_rows - 1) / small_rows;
  }
  int64_t count() const { return large + small; }
  int64_t first(int64_t chunk) const {
    return chunk < large ? chunk * large_rows : std::min(rows, large * large_rows + (chunk - large) * small_rows);
  }
};

/// Adds the bias: y[r, o] += bias[o] for o in [first, last).
template <typename T>
void add(float* y, const T* bias, int64_t rows, int64_t out, int64_t first, int64_t last) {
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t o = first; o < last; ++o) y[r * out + o] += static_cast<float>(bias[o]);
  }
}

/// `whole` describes the weights: type, w, in, out and scales.
at::Tensor few_rows(const at::Tensor& given, Gemv whole, const at::Tensor& given_bias, int64_t row_bytes) {
  const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
  const int64_t rows = x.size(0), out = whole.out, in = whole.in;
  at::Tensor y = at::empty({rows, out}, x.options());
  whole.x = x.const_data_ptr<float>();
  whole.y = y.mutable_data_ptr<float>();
  ThreadPool& threads = thread_pool();
  const Chunks chunks(out, row_bytes, threads.threads());
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
    part.y = whole.y;
    if (!bias.defined()) return;
    if (bias.scalar_type() == at::kFloat)
      add(part.y, bias.const_data_ptr<float>(), rows, out, part.first, part.last);
    else if (bias.scalar_type() == at::kHalf)
      add(part.y, bias.const_data_ptr<at::Half>(), rows, out, part.first, part.last);
    else
      add(part.y, bias.const_data_ptr<at::BFloat16>(), rows, out, part.first, part.last);
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

}  // namespace

at::Tensor CpuBackend::linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                              at::ScalarType result) const {
  const bool known = is_element(weight.scalar_type()) && (!bias.defined() || is_element(bias.scalar_type()));
  if (!known || !weight.is_contiguous() || x.numel() == 0) return Backend::linear(x, weight, bias, result);
  const Gemv whole = described(weight);
  if (x.size(0) <= most_rows(weight.scalar_type())) return few_rows(x, whole, bias, whole.in * weight.element_size());
  return kernels().tiles && whole.type != Element::F32 ? tiled_linear(x, whole, bias)
                                                       : Backend::linear(x, weight, bias, result);
}

at::Tensor CpuBackend::quantized_linear(const at::Tensor& x, const QuantizedMatrix& w, const at::Tensor& bias,
                                        at::ScalarType /*result*/) const {
  const Gemv whole = described(w);
  const bool few = x.size(0) <= most_rows(w.codes.scalar_type()) && (!bias.defined() || is_element(bias.scalar_type()));
  if (few && x.numel() > 0) return few_rows(x, whole, bias, w.layout.code_bytes());
  return kernels().tiles && x.numel() > 0 ? tiled_linear(x, whole, bias) : many_rows(x, whole, bias);
}

const Backend& cpu_backend() {
  static const CpuBackend cpu;
  return cpu;
}

}  // namespace pm::ops
