// SPDX-License-Identifier: Apache-2.0
// Code that the two decode kernels share: the split of a thread block, and where its results go.
#pragma once
#include "worker/ops/cuda/scores.cuh"

namespace pm::ops::cuda {

namespace decode {

inline constexpr int warps = 4, threads = 32 * warps;
inline constexpr int min_blocks = 2 * warps;  ///< KV blocks of a split: with fewer, launching costs more than reading
inline constexpr int max_splits = 512;
inline constexpr int block_heads = 8;  ///< query heads of a thread block, at most

}  // namespace decode

/// The KV blocks first .. last - 1 that a thread block reads. A sequence is divided into as many splits as its length
/// needs, at most p.splits; thread blocks of other splits have nothing to do.
struct Split {
  int64_t keys, query, hidden;  ///< of the sequence: keys hidden .. keys - 1 are seen from the query's position
  int used;                     ///< splits of this sequence, at least 1
  int first, last;

  __device__ __forceinline__ Split(const DecodeAttention& p, int64_t sequence, int split) {
    keys = p.keys[sequence];
    query = p.contexts ? p.contexts[sequence] : keys - 1;
    hidden = p.scores.window > 0 && query + 1 > p.scores.window ? query + 1 - p.scores.window : 0;
    const int begin = static_cast<int>(hidden / block_tokens),
              end = static_cast<int>((keys + block_tokens - 1) / block_tokens), splits = static_cast<int>(p.splits),
              all = end > begin ? end - begin : 0;
    int each = (all + splits - 1) / splits;
    if (each < decode::min_blocks) each = decode::min_blocks;
    used = all > each ? (all + each - 1) / each : 1;
    first = begin + split * each < end ? begin + split * each : end;
    last = first + each < end ? first + each : end;
  }
};

/// The partial results of one head of one sequence, in p.parts.
struct Parts {
  float* values;  ///< [splits, d], relative to the split's largest score
  float* ends;    ///< [splits, 2]: the largest score, and the sum of weights relative to it

  __device__ __forceinline__ Parts(const DecodeAttention& p, int64_t sequence, int64_t head) {
    const int64_t which = sequence * p.heads + head;
    values = p.parts + which * p.splits * p.d;
    ends = p.parts + p.sequences * p.heads * p.splits * p.d + which * p.splits * 2;
  }
};

/// The results of a block's warps for one head, in shared memory: largest score and sum of weights of warp w at
/// ends[w * ends_stride], its values at values[w * values_stride].
struct WarpResults {
  const float *ends, *values;
  int ends_stride, values_stride;
};

/// Adds the results of all warps and stores the split's result: in `parts`, or in `out` where there is no other split.
__device__ __forceinline__ void store_head(const DecodeAttention& p, const Split& split, int64_t sequence, int64_t row,
                                           int64_t head, const WarpResults& of) {
  float largest = lowest, total = 0, shares[decode::warps];
#pragma unroll
  for (int w = 0; w < decode::warps; ++w) largest = fmaxf(largest, of.ends[w * of.ends_stride]);
#pragma unroll
  for (int w = 0; w < decode::warps; ++w) {
    shares[w] = weight_of(of.ends[w * of.ends_stride], largest);
    total += shares[w] * of.ends[w * of.ends_stride + 1];
  }
  if (split.used == 1) total += sink_weight(p.scores, head, largest);  // else combine_kernel adds it
  const Parts parts(p, sequence, head);
  const auto index = static_cast<int>(blockIdx.x), d = static_cast<int>(p.d);
  for (int i = static_cast<int>(threadIdx.x); i < d; i += decode::threads) {
    float value = 0;
#pragma unroll
    for (int w = 0; w < decode::warps; ++w) value += shares[w] * of.values[w * of.values_stride + i];
    if (split.used > 1)
      parts.values[static_cast<int64_t>(index) * d + i] = value;
    else
      put_element(p.out, p.type, (row * p.heads + head) * p.d + i, total > 0 ? value / total : 0.f);
  }
  if (split.used > 1 && threadIdx.x == 0) parts.ends[2 * index] = largest, parts.ends[2 * index + 1] = total;
}

/// A decode kernel, and the query heads of one KV head that a thread block of it has.
struct DecodeKernel {
  void (*launch)(DecodeAttention);
  int64_t heads;
};
/// Returns whether the kernels of decode_mma.cu serve p.
bool decode_uses_tensor_cores(const DecodeAttention&);
/// Returns the kernel of decode_mma.cu that serves p.
DecodeKernel tensor_core_kernel(const DecodeAttention&);

}  // namespace pm::ops::cuda
