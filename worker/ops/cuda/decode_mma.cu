// SPDX-License-Identifier: Apache-2.0
// Decode attention on tensor cores: for 16-bit caches, up to eight query heads of a KV head at once. A thread block has
// these heads and a split of one sequence's keys; its warps take blocks of 16 keys in turn, and each key and value is
// read once, in 16-byte loads from the cache straight to the registers that `mma` reads.
//
// Scores are Q K^T. The eight heads are half of the 16 rows of a product; the other half holds what the heads lose when
// they are rounded to 16 bits, so that scores are as good as with fp32 queries. Values are V^T P^T: 16 columns of V by
// eight heads, once for the rounded weights and once for what the rounding loses. The order of columns within a product
// is chosen such that a lane's 16 bytes are operands as they are (K), or after a permutation of pairs (V).
#include "worker/ops/cuda/decode.cuh"
#include "worker/ops/cuda/mma.cuh"

namespace pm::ops::cuda {

namespace {

using decode::block_heads;
using decode::threads;
using decode::warps;

/// Returns the lower, or the upper, halves of two words as one word, the first in the lower half.
__device__ __forceinline__ unsigned lower_halves(unsigned a, unsigned b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ unsigned upper_halves(unsigned a, unsigned b) { return __byte_perm(a, b, 0x7632); }

__device__ __forceinline__ unsigned word(const uint4& words, int i) {
  return i == 0 ? words.x : i == 1 ? words.y : i == 2 ? words.z : words.w;
}

/// Two numbers as two words of 16-bit numbers: rounded to T, and what the rounding leaves of them.
struct Pair {
  unsigned rounded, rest;
};
template <typename T>
__device__ __forceinline__ Pair divided(float first, float second) {
  Pair pair;
  float near[2];
  pair.rounded = packed<T>(first, second);
  unpacked<T>(pair.rounded, near);
  pair.rest = packed<T>(first - near[0], second - near[1]);
  return pair;
}

/// Keys and values of a KV block in the registers of a warp. Lane 4 g + t has columns 32 c + 8 t .. + 7 of keys g and
/// g + 8, and columns 64 c + 8 g .. + 7 of the values of keys 2 t, 2 t + 1, 2 t + 8 and 2 t + 9.
template <typename T, int Chunks>
struct Block {
  uint4 k[2][2 * Chunks], v[Chunks][4];

  /// Loads the first `count` keys, whose first element for this lane `from` points to; the others are 0, as the cache
  /// may hold anything there. A full block has 16 keys of 64 x Chunks columns.
  template <bool Full>
  __device__ __forceinline__ void load_keys(const T* from, int d, int count) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const T* key = from + 8 * j * d;
      const int limit = 8 * j + g < count ? d - 8 * t : 0;
#pragma unroll
      for (int c = 0; c < 2 * Chunks; ++c) k[j][c] = load_16<T, true>(key + 32 * c, Full ? 1 : limit - 32 * c);
    }
  }
  template <bool Full>
  __device__ __forceinline__ void load_values(const T* from, int d, int count) {
    const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = i % 2 + i / 2 * 8;
      const T* value = from + key * d;
      const int limit = 2 * t + key < count ? d - 8 * g : 0;
#pragma unroll
      for (int c = 0; c < Chunks; ++c) v[c][i] = load_16<T, true>(value + 64 * c, Full ? 1 : limit - 64 * c);
    }
  }
  /// Adds the products of queries and keys; the operands of the queries are those of store_queries(). The sums of lane
  /// 4 g + t are head g by keys 2 t, 2 t + 1 (in [0]) and 2 t + 8, 2 t + 9 (in [1]), then the same of the remainders.
  __device__ __forceinline__ void multiply_keys(const uint4* queries, float (&sums)[2][4]) const {
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
    for (int step = 0; step < 4 * Chunks; ++step) {
      const uint4 q = queries[step * 32 + lane];
      const unsigned a[4] = {q.x, q.y, q.z, q.w};
#pragma unroll
      for (int j = 0; j < 2; ++j)
        multiply<T>(sums[j], a, word(k[j][step / 2], 2 * (step % 2)), word(k[j][step / 2], 2 * (step % 2) + 1));
    }
  }
  /// Adds the products of values and weights, as operands of head g: keys 2 t, 2 t + 1 in [0], 2 t + 8, 2 t + 9 in [1].
  /// Lane 4 g + t gets of sums [4 c + i] columns 64 c + 8 g + 2 i and the next, of heads 2 t and 2 t + 1 each.
  __device__ __forceinline__ void multiply_values(const unsigned (&weights)[2], const unsigned (&rests)[2],
                                                  float (&sums)[4 * Chunks][4]) const {
#pragma unroll
    for (int c = 0; c < Chunks; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned w[4] = {word(v[c][0], i), word(v[c][1], i), word(v[c][2], i), word(v[c][3], i)};
        const unsigned a[4] = {lower_halves(w[0], w[1]), upper_halves(w[0], w[1]), lower_halves(w[2], w[3]),
                               upper_halves(w[2], w[3])};
        multiply<T>(sums[4 * c + i], a, weights[0], weights[1]);
        multiply<T>(sums[4 * c + i], a, rests[0], rests[1]);
      }
    }
  }
};

/// The softmax of a warp's keys so far, of lane 4 g + t.
template <int Chunks>
struct Running {
  float values[4 * Chunks][4] = {};  ///< as Block::multiply_values adds them
  float largest = lowest;            ///< score of head g
  float sum = 0;                     ///< of the weights of head g that this lane has computed

  /// Rescales to a larger score of head g. All lanes of the warp call it.
  __device__ __forceinline__ void rescale(float most) {
    const int t = static_cast<int>(threadIdx.x % 4);
    const float kept = weight_of(largest, most), first = __shfl_sync(all_lanes, kept, 8 * t),
                second = __shfl_sync(all_lanes, kept, 8 * t + 4);  // of heads 2 t and 2 t + 1
    sum *= kept;
    largest = most;
#pragma unroll
    for (int i = 0; i < 4 * Chunks; ++i) {
      values[i][0] *= first, values[i][2] *= first;
      values[i][1] *= second, values[i][3] *= second;
    }
  }
};

/// Stores the queries of the block's heads to shared memory as operands, for each lane of each step of 16 columns:
/// rows 0 to 7 are the heads rounded to T, rows 8 to 15 their remainders. Rows of other heads are 0.
template <typename T, int Chunks>
__device__ __forceinline__ void store_queries(const DecodeAttention& p, int64_t offset, int heads, uint4* queries) {
  const int lane = static_cast<int>(threadIdx.x % 32), g = lane / 4, t = lane % 4;
  for (int step = static_cast<int>(threadIdx.x / 32); step < 4 * Chunks; step += warps) {
    const int column = step / 2 * 32 + 8 * t + step % 2 * 4;
    float q[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      q[i] = g < heads && column + i < p.d ? element_at(p.q, p.type, offset + g * p.d + column + i) : 0.f;
    const Pair first = divided<T>(q[0], q[1]), second = divided<T>(q[2], q[3]);
    queries[step * 32 + lane] = uint4{first.rounded, first.rest, second.rounded, second.rest};
  }
}

/// Heads of up to 64 x Chunks elements.
template <typename T, int Chunks>
__global__ void __launch_bounds__(threads, 2) decode_mma_kernel(DecodeAttention p) {
  let_next_start();
  constexpr int stride = 64 * Chunks + 1;  // between heads in shared memory: lanes store to different banks
  // The keys of the next KV block are loaded ahead where registers allow it.
  constexpr bool ahead = Chunks <= 2;
  const int64_t sequence = blockIdx.z;
  const Split split(p, sequence, static_cast<int>(blockIdx.x));
  if (static_cast<int>(blockIdx.x) >= split.used) return;  // without a wait: its place is for the next kernel
  PM_SHARED(uint4, queries, 4 * Chunks * 32);
  PM_SHARED(float, joined, warps* block_heads* stride);
  PM_SHARED(float, ends, warps* block_heads * 2);
  const int group = static_cast<int>(p.heads) / static_cast<int>(p.kv_heads),
            head_groups = (group + block_heads - 1) / block_heads, index = static_cast<int>(blockIdx.y);
  const int kv = index / head_groups, head_of_group = index % head_groups * block_heads,
            heads = group - head_of_group < block_heads ? group - head_of_group : block_heads;
  const int64_t head = kv * group + head_of_group, row = p.rows ? p.rows[sequence] : sequence;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32), g = lane / 4,
            t = lane % 4, d = static_cast<int>(p.d);
  Block<T, Chunks> block;
  Running<Chunks> all;
  const int mine = (split.last - split.first - warp + warps - 1) / warps;  // number of KV blocks of this warp
  const int keys = static_cast<int>(split.keys), hidden = static_cast<int>(split.hidden);
  const int64_t before = static_cast<int64_t>(kv) * (block_tokens * d);
  const T *k_of_lane = static_cast<const T*>(p.k_cache) + before + g * d + 8 * t,
          *v_of_lane = static_cast<const T*>(p.v_cache) + before + 2 * t * d + 8 * g;
  const bool whole = d == 64 * Chunks;
  const bool plain = !(p.scores.softcap > 0) && !p.scores.slopes && !p.scores.relative;
  const int32_t* table = p.tables + sequence * p.table_stride;
  int32_t entry = 0;
  const auto key_of = [&](int n) { return (split.first + n * warps + warp) * static_cast<int>(block_tokens); };
  const auto place = [&](int n) {  // called for 0, 1, ...: the table is read 32 entries ahead
    if (n % 32 == 0) entry = n + lane < mine ? table[split.first + (n + lane) * warps + warp] : 0;
    return __shfl_sync(all_lanes, entry, n % 32) * p.block_stride;
  };
  const auto load_keys = [&](int n, int64_t at) {
    const int count = keys - key_of(n);
    whole&& count >= block_tokens ? block.template load_keys<true>(k_of_lane + at, d, count)
                                  : block.template load_keys<false>(k_of_lane + at, d, count);
  };
  const auto load_values = [&](int n, int64_t at) {
    const int count = keys - key_of(n);
    whole&& count >= block_tokens ? block.template load_values<true>(v_of_lane + at, d, count)
                                  : block.template load_values<false>(v_of_lane + at, d, count);
  };
  int64_t next = mine > 0 ? place(0) : 0;
  wait_for_previous();
  if (ahead && mine > 0) load_keys(0, next);
  store_queries<T, Chunks>(p, row * p.q_stride + head * p.d, heads, queries);
  __syncthreads();
  for (int n = 0; n < mine; ++n) {
    const int64_t here = ahead || n == 0 ? next : place(n);
    ahead ? load_values(n, here) : load_keys(n, here);
    float products[2][4] = {};
    block.multiply_keys(queries, products);
    if constexpr (!ahead) {
      load_values(n, here);
    } else if (n + 1 < mine) {
      next = place(n + 1);
      load_keys(n + 1, next);
    }

    // Rows without a head have products of 0, and nothing is stored of them.
    const int first_key = key_of(n), own_head = g < heads ? g : 0;
    float scores[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[i] = (products[i / 2][i % 2] + products[i / 2][2 + i % 2]) * p.scores.scale;
    if (!plain || first_key < hidden || keys - first_key < block_tokens) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int key = first_key + i / 2 * 8 + 2 * t + i % 2;
        scores[i] = key < keys && key >= hidden
                        ? score_of(p.scores, products[i / 2][i % 2] + products[i / 2][2 + i % 2], head + own_head,
                                   split.query, key)
                        : lowest;
      }
    }
    float most = all.largest;
#pragma unroll
    for (int i = 0; i < 4; ++i) most = fmaxf(most, scores[i]);
    most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 1));
    most = fmaxf(most, __shfl_xor_sync(all_lanes, most, 2));
    if (__ballot_sync(all_lanes, most > all.largest) != 0) all.rescale(most);  // seldom after the first blocks
    const float base = all.largest == lowest ? 0.f : all.largest;              // while all keys are masked
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      scores[i] = fast_exp(scores[i] - base);
      all.sum += scores[i];
    }
    const Pair first = divided<T>(scores[0], scores[1]), second = divided<T>(scores[2], scores[3]);
    block.multiply_values({first.rounded, second.rounded}, {first.rest, second.rest}, all.values);
  }

  all.sum += __shfl_xor_sync(all_lanes, all.sum, 1);
  all.sum += __shfl_xor_sync(all_lanes, all.sum, 2);
  if (t == 0) ends[(warp * block_heads + g) * 2] = all.largest, ends[(warp * block_heads + g) * 2 + 1] = all.sum;
#pragma unroll
  for (int i = 0; i < 4 * Chunks; ++i) {
    float *first = joined + (warp * block_heads + 2 * t) * stride + i / 4 * 64 + 8 * g + i % 4 * 2,
          *second = first + stride;
    first[0] = all.values[i][0], first[1] = all.values[i][2];
    second[0] = all.values[i][1], second[1] = all.values[i][3];
  }
  __syncthreads();
  for (int h = 0; h < heads; ++h)
    store_head(p, split, sequence, row, head + h,
               {ends + 2 * h, joined + h * stride, 2 * block_heads, block_heads * stride});
}

template <typename T>
DecodeKernel typed_kernel(int64_t d) {
  return {d <= 64    ? &decode_mma_kernel<T, 1>
          : d <= 128 ? &decode_mma_kernel<T, 2>
          : d <= 192 ? &decode_mma_kernel<T, 3>
                     : &decode_mma_kernel<T, 4>,
          block_heads};
}

}  // namespace

bool decode_uses_tensor_cores(const DecodeAttention& p) {
  return (p.cache == Element::F16 || p.cache == Element::BF16) && p.d <= 256 && p.d % 8 == 0 &&
         p.block_stride % 8 == 0 && aligned_16(p.k_cache) && aligned_16(p.v_cache);
}

DecodeKernel tensor_core_kernel(const DecodeAttention& p) {
  return p.cache == Element::F16 ? typed_kernel<__half>(p.d) : typed_kernel<__nv_bfloat16>(p.d);
}

}  // namespace pm::ops::cuda
