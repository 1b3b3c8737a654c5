// SPDX-License-Identifier: Apache-2.0
// The GEMV kernel. Four warps share four outputs and each takes a part of the inputs; x comes from the L1 cache, once
// for the four outputs.
#include "worker/ops/cuda/device.cuh"
#include "worker/ops/cuda/gemv.h"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 4, threads = 32 * warps, outputs = 4;

/// `Count` inputs of a row of x as fp32.
template <typename X, bool Aligned, int Count>
__device__ __forceinline__ void load_inputs(const X* from, int64_t left, float (&values)[Count]) {
  if constexpr (Aligned && Count % per_load<X> == 0) {
#pragma unroll
    for (int i = 0; i < Count; i += per_load<X>) {
      float some[per_load<X>];
      unpack<X>(load_16<X, true>(from + i, left - i), some);
#pragma unroll
      for (int j = 0; j < per_load<X>; ++j) values[i + j] = some[j];
    }
  } else {
#pragma unroll
    for (int i = 0; i < Count; ++i) values[i] = i < left ? widened(from[i]) : 0.f;
  }
}

template <typename W, typename X, int Rows, bool Aligned>
__global__ void __launch_bounds__(threads, 2) gemv_kernel(Gemv p) {
  constexpr int per = per_load<W>;
  PM_SHARED(float, parts, warps* Rows* outputs);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * outputs;
  const W* w = static_cast<const W*>(p.w) + first * p.in;
  const X* x = static_cast<const X*>(p.x);
  const int here = static_cast<int>(p.out - first < outputs ? p.out - first : outputs);
  [[maybe_unused]] const int64_t scale_groups = sizeof(W) == 1 ? (p.in + p.scale_group - 1) / p.scale_group : 0;
  float sums[Rows][outputs] = {};
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * per; i < p.in; i += threads * per) {
    uint4 words[outputs];
#pragma unroll
    for (int o = 0; o < outputs; ++o) words[o] = load_16<W, Aligned>(w + o * p.in + i, o < here ? p.in - i : 0);
    float weights[outputs][per];
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      unpack<W>(words[o], weights[o]);
      if constexpr (sizeof(W) == 1) {
        const float scale =
            o < here
                ? widened(static_cast<const __nv_bfloat16*>(p.scales)[(first + o) * scale_groups + i / p.scale_group])
                : 0.f;
#pragma unroll
        for (int j = 0; j < per; ++j) weights[o][j] *= scale;
      }
    }
#pragma unroll
    for (int r = 0; r < Rows; ++r) {
      float values[per];
      load_inputs<X, Aligned>(x + r * p.x_stride + i, p.in - i, values);
#pragma unroll
      for (int o = 0; o < outputs; ++o) {
#pragma unroll
        for (int j = 0; j < per; ++j) sums[r][o] += values[j] * weights[o][j];
      }
    }
  }
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      const float sum = warp_sum(sums[r][o]);
      if (lane == 0) parts[(warp * Rows + r) * outputs + o] = sum;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < Rows * outputs; i += threads) {
    const int r = i / outputs, o = i % outputs;
    if (o >= here) continue;
    float sum = 0;
#pragma unroll
    for (int part = 0; part < warps; ++part) sum += parts[part * Rows * outputs + i];
    if (p.bias) sum += element_at(p.bias, p.bias_type, first + o);
    put_element(p.y, p.y_type, r * p.out + first + o, sum);
  }
}

template <typename W, typename X, int Rows, bool Aligned>
void start_rows(const Gemv& p, Stream stream) {
  auto* kernel = &gemv_kernel<W, X, Rows, Aligned>;
  PM_LAUNCH(kernel, static_cast<unsigned>((p.out + outputs - 1) / outputs), threads, 0, stream)(p);
}

/// Takes eight, four, two rows or one at a time; one where 16-byte loads are not possible, which no model's matrices
/// need.
template <typename W, typename X>
void start(Gemv p, Stream stream) {
  const bool aligned = p.in % per_load<W> == 0 && aligned_16(p.w) && p.x_stride % per_load<X> == 0 && aligned_16(p.x);
  const int64_t all = p.rows;
  for (int64_t done = 0; done < all;) {
    const int64_t left = all - done;
    p.rows = !aligned || left < 2 ? 1 : left >= 8 ? 8 : left >= 4 ? 4 : 2;
    if (!aligned)
      start_rows<W, X, 1, false>(p, stream);
    else if (p.rows == 8)
      start_rows<W, X, 8, true>(p, stream);
    else if (p.rows == 4)
      start_rows<W, X, 4, true>(p, stream);
    else if (p.rows == 2)
      start_rows<W, X, 2, true>(p, stream);
    else
      start_rows<W, X, 1, true>(p, stream);
    p.x = static_cast<const char*>(p.x) + p.rows * p.x_stride * element_bytes(p.x_type);
    p.y = static_cast<char*>(p.y) + p.rows * p.out * element_bytes(p.y_type);
    done += p.rows;
  }
}

}  // namespace

void gemv(const Gemv& p, Stream stream) {
  constexpr const char* name = "gemv";
  require(p.y_type != Element::I8 && p.bias_type != Element::I8, name, "results and bias are fp32, fp16 or bf16");
  if (p.rows == 0 || p.out == 0) return;
  if (p.w_type == Element::I8) {
    require(p.scales && p.scale_group > 0 && (p.scale_group % 16 == 0 || p.scale_group >= p.in), name,
            "int8 weights need scales of groups of a multiple of 16 inputs, or of all; got groups of " +
                std::to_string(p.scale_group));
    with_float(p.x_type, name, [&](auto* x) { start<int8_t, std::remove_pointer_t<decltype(x)>>(p, stream); });
  } else {
    require(p.x_type == Element::F32 || p.x_type == p.w_type, name, "x is fp32 or of the weights' type");
    with_float(p.w_type, name, [&](auto* w) {
      using W = std::remove_pointer_t<decltype(w)>;
      if (p.x_type == Element::F32)
        start<W, float>(p, stream);
      else
        start<W, W>(p, stream);
    });
  }
  check_launch(name);
}

}  // namespace pm::ops::cuda
