// SPDX-License-Identifier: Apache-2.0
// Prefill attention with products and sums in fp32, for every type and shape. A warp has four queries, a lane one key
// of a tile of 32. Then the tile's values replace the keys in shared memory, and each lane computes some columns of the
// result.
#include "worker/ops/cuda/prefill.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 4, threads = 32 * warps, of_warp = 4, queries = warps * of_warp, tile_keys = 32;

/// Copies keys or values first .. first + 31 of the tile to shared memory as fp32 [32, stride]; 0 beyond the last.
template <typename C>
__device__ __forceinline__ void gather(const PrefillAttention& p, const Tile& tile, const void* from, int64_t first,
                                       float* to, int stride) {
  for (int token = static_cast<int>(threadIdx.x) / 32; token < tile_keys; token += warps) {
    const bool there = first + token < tile.to;
    const C* row = static_cast<const C*>(from) + (there ? tile.key_offset(p, first + token) : 0);
    for (int i = static_cast<int>(threadIdx.x) % 32; i < p.d; i += 32)
      to[token * stride + i] = there ? widened(row[i]) : 0.f;
  }
}

template <typename C, int Columns>  // columns of the result in each lane
__global__ void __launch_bounds__(threads, 2) prefill_kernel(PrefillAttention p) {
  begin_after_previous();
  const Tile tile(p, blockIdx.x, queries, tile_keys);
  if (tile.begin >= tile.end) return;
  const int d = static_cast<int>(p.d), lane = static_cast<int>(threadIdx.x % 32),
            warp = static_cast<int>(threadIdx.x / 32), stride = d + 1;
  PM_DYNAMIC_SHARED(bytes);
  float *q = reinterpret_cast<float*>(bytes), *held = q + queries * d;  // [16, d], [32, d + 1]: keys, then values
  for (int i = static_cast<int>(threadIdx.x); i < queries * d; i += threads) {
    const int64_t query = tile.begin + i / d;
    q[i] = query < tile.end ? element_at(p.q, p.type, tile.query_offset(p, query) + i % d) : 0.f;
  }
  float largest[of_warp], sum[of_warp], result[of_warp][Columns];
#pragma unroll
  for (int r = 0; r < of_warp; ++r) {
    largest[r] = lowest;
    sum[r] = 0;
#pragma unroll
    for (int c = 0; c < Columns; ++c) result[r][c] = 0;
  }
  for (int64_t first = tile.from; first < tile.to; first += tile_keys) {
    __syncthreads();  // the previous tile's values are used, the queries are loaded
    gather<C>(p, tile, p.k, first, held, stride);
    __syncthreads();
    float products[of_warp] = {};
    for (int i = 0; i < d; ++i) {
      const float key = held[lane * stride + i];
#pragma unroll
      for (int r = 0; r < of_warp; ++r) products[r] += q[(warp * of_warp + r) * d + i] * key;
    }
    const int64_t key = first + lane;
#pragma unroll
    for (int r = 0; r < of_warp; ++r) {
      const int64_t query = tile.context + tile.begin + warp * of_warp + r;
      const bool seen = key < tile.to && sees(p.scores, query, key);
      const float score = seen ? score_of(p.scores, products[r], tile.head, query, key) : lowest;
      const float now = fmaxf(largest[r], warp_max(score)), kept = weight_of(largest[r], now);
      largest[r] = now;
      products[r] = weight_of(score, now);
      sum[r] = sum[r] * kept + warp_sum(products[r]);
#pragma unroll
      for (int c = 0; c < Columns; ++c) result[r][c] *= kept;
    }
    __syncthreads();  // the keys are used
    gather<C>(p, tile, p.v, first, held, stride);
    __syncthreads();
    for (int token = 0; token < tile_keys; ++token) {
      float weights[of_warp];
#pragma unroll
      for (int r = 0; r < of_warp; ++r) weights[r] = __shfl_sync(all_lanes, products[r], token);
#pragma unroll
      for (int c = 0; c < Columns; ++c) {
        const float value = 32 * c + lane < d ? held[token * stride + 32 * c + lane] : 0.f;
#pragma unroll
        for (int r = 0; r < of_warp; ++r) result[r][c] += weights[r] * value;
      }
    }
  }
#pragma unroll
  for (int r = 0; r < of_warp; ++r) {
    const int64_t query = tile.begin + warp * of_warp + r;
    if (query >= tile.end) continue;
    sum[r] += sink_weight(p.scores, tile.head, largest[r]);
#pragma unroll
    for (int c = 0; c < Columns; ++c) {
      if (32 * c + lane < d)
        put_element(p.out, p.out_type, tile.out_offset(p, query) + 32 * c + lane,
                    sum[r] > 0 ? result[r][c] / sum[r] : 0.f);
    }
  }
}

template <typename C, int Columns>
void start(const PrefillAttention& p, Stream stream) {
  auto* kernel = &prefill_kernel<C, Columns>;
  const int64_t shared = static_cast<int64_t>(sizeof(float)) * (queries * p.d + tile_keys * (p.d + 1));
  allow_shared("prefill_attention", kernel, shared);
  const dim3 grid(static_cast<unsigned>((p.max_tokens + queries - 1) / queries), static_cast<unsigned>(p.heads),
                  static_cast<unsigned>(p.sequences));
  PM_LAUNCH(kernel, grid, threads, static_cast<size_t>(shared), stream)(p);
}

}  // namespace

bool prefill_uses_tensor_cores(const PrefillAttention& p) {
  return p.type == p.keys_type && p.type != Element::F32 && (p.out_type == p.type || p.out_type == Element::F32) &&
         p.d % 8 == 0 && p.d <= 256 && p.q_stride % 8 == 0 && p.k_stride % 8 == 0 && aligned_16(p.q) &&
         aligned_16(p.k) && aligned_16(p.v);
}

void prefill_attention(const PrefillAttention& p, Stream stream) {
  constexpr const char* name = "prefill_attention";
  require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, name,
          std::to_string(p.heads) + " heads over " + std::to_string(p.kv_heads) + " kv heads");
  require(p.d >= 1 && p.d <= 512, name, "heads of " + std::to_string(p.d) + " numbers; 1 to 512 are served");
  require(p.paged ? p.tables != nullptr : p.key_rows != nullptr, name,
          p.paged ? "a cache needs its tables" : "rows need to know where each sequence's begin");
  if (p.sequences == 0 || p.max_tokens == 0) return;
  if (prefill_uses_tensor_cores(p)) return prefill_on_tensor_cores(p, stream);
  with_float(p.keys_type, name, [&](auto* t) {
    using C = std::remove_pointer_t<decltype(t)>;
    p.d <= 64    ? start<C, 2>(p, stream)
    : p.d <= 128 ? start<C, 4>(p, stream)
    : p.d <= 256 ? start<C, 8>(p, stream)
                 : start<C, 16>(p, stream);
  });
  check_launch(name);
}

}  // namespace pm::ops::cuda
