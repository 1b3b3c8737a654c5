// SPDX-License-Identifier: Apache-2.0
// Prefill attention on tensor cores (FlashAttention-2; Dao 2023). Four warps of 16 queries each share tiles of keys and
// values, which are copied to shared memory while the previous tile is processed. Rows there are padded by 16 bytes, so
// that eight of them fall into different banks.
#include "worker/ops/cuda/mma.cuh"
#include "worker/ops/cuda/prefill.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 4, threads = 32 * warps, queries = 16 * warps;
template <int D>
constexpr int tile_keys = D <= 128 ? 64 : 32;
template <int D>
constexpr int row_elements = D + 8;
template <int D>
constexpr int shared_bytes = 2 * row_elements<D> * (queries + 2 * tile_keys<D>);

/// Starts the copy of rows of p.d elements, padded with zeros to D, to `to`. place(row) is the element offset in
/// `from`; negative: a row of zeros.
template <typename T, int D, int Rows, typename Place>
__device__ __forceinline__ void copy_rows(const PrefillAttention& p, const void* from, T* to, Place&& place) {
  constexpr int pieces = D / 8;
  for (int i = static_cast<int>(threadIdx.x); i < Rows * pieces; i += threads) {
    const int row = i / pieces, column = i % pieces * 8;
    const int64_t at = place(row);
    const bool real = at >= 0 && column < p.d;
    copy_16(to + row * row_elements<D> + column, static_cast<const T*>(from) + (real ? at + column : 0), real);
  }
}

template <typename T, int D>
__global__ void __launch_bounds__(threads, 2) prefill_mma_kernel(PrefillAttention p) {
  begin_after_previous();
  constexpr int keys_at_once = tile_keys<D>, key_tiles = keys_at_once / 8, column_tiles = D / 8,
                stride = row_elements<D>;
  const Tile tile(p, blockIdx.x, queries, keys_at_once);
  if (tile.begin >= tile.end) return;
  PM_DYNAMIC_SHARED(bytes);
  T *q = reinterpret_cast<T*>(bytes), *k = q + queries * stride, *v = k + keys_at_once * stride;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const auto copy_tile = [&](const void* from, T* to, int64_t first) {
    copy_rows<T, D, keys_at_once>(
        p, from, to, [&](int row) { return first + row < tile.to ? tile.key_offset(p, first + row) : int64_t{-1}; });
    commit_copies();
  };
  copy_rows<T, D, queries>(p, p.q, q, [&](int row) {
    return tile.begin + row < tile.end ? tile.query_offset(p, tile.begin + row) : int64_t{-1};
  });
  copy_tile(p.k, k, tile.from);

  // Elements of this lane: rows lane / 4 and lane / 4 + 8 of the warp's queries, columns 2 (lane % 4) and the next of
  // each eight.
  const int64_t position = tile.context + tile.begin + 16 * warp + lane / 4;
  float largest[2] = {lowest, lowest}, sum[2] = {0, 0}, result[column_tiles][4] = {};
  for (int64_t first = tile.from; first < tile.to; first += keys_at_once) {
    wait_copies<0>();
    __syncthreads();  // queries and keys are loaded; the previous tile's values are used
    copy_tile(p.v, v, first);
    float scores[key_tiles][4] = {};
#pragma unroll
    for (int depth = 0; depth < D; depth += 16) {
      unsigned a[4];
      load_matrices(a, q + (16 * warp + lane % 16) * stride + depth + lane / 16 * 8);
#pragma unroll
      for (int t = 0; t < key_tiles; t += 2) {
        unsigned b[4];
        load_matrices(b, k + (8 * t + lane % 8 + lane / 16 * 8) * stride + depth + lane / 8 % 2 * 8);
        multiply<T>(scores[t], a, b[0], b[1]);
        multiply<T>(scores[t + 1], a, b[2], b[3]);
      }
    }
    __syncthreads();  // the keys are used
    if (first + keys_at_once < tile.to)
      copy_tile(p.k, k, first + keys_at_once);
    else
      commit_copies();

    float now[2] = {largest[0], largest[1]};
#pragma unroll
    for (int t = 0; t < key_tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t key = first + 8 * t + 2 * (lane % 4) + i % 2, query = position + i / 2 * 8;
        const bool seen = key < tile.to && sees(p.scores, query, key);
        scores[t][i] = seen ? score_of(p.scores, scores[t][i], tile.head, query, key) : lowest;
        now[i / 2] = fmaxf(now[i / 2], scores[t][i]);
      }
    }
    float kept[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      now[r] = fmaxf(now[r], __shfl_xor_sync(all_lanes, now[r], 1));
      now[r] = fmaxf(now[r], __shfl_xor_sync(all_lanes, now[r], 2));
      kept[r] = weight_of(largest[r], now[r]);
      largest[r] = now[r];
      sum[r] *= kept[r];
    }
#pragma unroll
    for (int t = 0; t < key_tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        scores[t][i] = weight_of(scores[t][i], now[i / 2]);
        sum[i / 2] += scores[t][i];  // of this lane's keys; the lanes are added at the end
      }
    }
#pragma unroll
    for (int c = 0; c < column_tiles; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) result[c][i] *= kept[i / 2];
    }
    wait_copies<1>();
    __syncthreads();  // the values are loaded
#pragma unroll
    for (int t = 0; t < key_tiles; t += 2) {
      const unsigned a[4] = {packed<T>(scores[t][0], scores[t][1]), packed<T>(scores[t][2], scores[t][3]),
                             packed<T>(scores[t + 1][0], scores[t + 1][1]),
                             packed<T>(scores[t + 1][2], scores[t + 1][3])};
#pragma unroll
      for (int c = 0; c < column_tiles; c += 2) {
        unsigned b[4];
        load_transposed(b, v + (8 * t + lane % 16) * stride + 8 * c + lane / 16 * 8);
        multiply<T>(result[c], a, b[0], b[1]);
        multiply<T>(result[c + 1], a, b[2], b[3]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sum[r] += __shfl_xor_sync(all_lanes, sum[r], 1);
    sum[r] += __shfl_xor_sync(all_lanes, sum[r], 2);
    const int64_t query = tile.begin + 16 * warp + lane / 4 + 8 * r;
    if (query >= tile.end) continue;
    sum[r] += sink_weight(p.scores, tile.head, largest[r]);
    const float share = sum[r] > 0 ? 1 / sum[r] : 0.f;
    const auto write = [&](auto* row) {
#pragma unroll
      for (int c = 0; c < column_tiles; ++c) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int column = 8 * c + 2 * (lane % 4) + i;
          if (column < p.d)
            row[column] = narrowed<std::remove_reference_t<decltype(*row)>>(result[c][2 * r + i] * share);
        }
      }
    };
    const int64_t out = tile.out_offset(p, query);
    p.out_type == Element::F32 ? write(static_cast<float*>(p.out) + out) : write(static_cast<T*>(p.out) + out);
  }
}

template <typename T, int D>
void start(const PrefillAttention& p, Stream stream) {
  auto* kernel = &prefill_mma_kernel<T, D>;
  allow_shared("prefill_attention", kernel, shared_bytes<D>);
  const dim3 grid(static_cast<unsigned>((p.max_tokens + queries - 1) / queries), static_cast<unsigned>(p.heads),
                  static_cast<unsigned>(p.sequences));
  PM_LAUNCH(kernel, grid, threads, shared_bytes<D>, stream)(p);
}

template <typename T>
void start_typed(const PrefillAttention& p, Stream stream) {
  p.d <= 64 ? start<T, 64>(p, stream) : p.d <= 128 ? start<T, 128>(p, stream) : start<T, 256>(p, stream);
}

}  // namespace

void prefill_on_tensor_cores(const PrefillAttention& p, Stream stream) {
  p.type == Element::F16 ? start_typed<__half>(p, stream) : start_typed<__nv_bfloat16>(p, stream);
  check_launch("prefill_attention");
}

}  // namespace pm::ops::cuda
