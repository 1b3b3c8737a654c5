// SPDX-License-Identifier: Apache-2.0
// Decode attention kernels. A block has some query heads of one kv head and a split of one sequence's keys; its warps
// take blocks of 16 keys in turn. In a warp, `Lanes` lanes share a key, each 16 bytes or `Loads` times 16 bytes of it,
// and each group of lanes keeps a softmax of its own until the end, so that the loop exchanges data within a group
// only. Each key and value is read once for all `Heads` heads. The scores and weights of a head are computed by the
// lanes whose number is the head's modulo `Heads`, and broadcast to the others.
#include "worker/ops/cuda/scores.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 4, threads = 32 * warps;

/// The keys of a thread block: KV blocks first .. last - 1 of its sequence.
struct Pages {
  int first, last;
};

__device__ __forceinline__ Pages pages_of_split(int64_t keys, int64_t hidden, int split, int splits) {
  const int begin = static_cast<int>(hidden / block_tokens),
            end = static_cast<int>((keys + block_tokens - 1) / block_tokens);
  const int each = (end - begin + splits - 1) / splits, first = begin + split * each;
  return {first < end ? first : end, first + each < end ? first + each : end};
}

/// Sums products[h] over a group of lanes. Lane i gets the sum of head i % Heads; each exchange halves the heads that a
/// lane still sums.
template <int Lanes, int Heads>
__device__ __forceinline__ float sum_of_own_head(float (&products)[Heads], int lane) {
  static_assert(Heads <= Lanes);
#pragma unroll
  for (int bit = 1; bit < Heads; bit *= 2) {
    const bool odd = lane & bit;
#pragma unroll
    for (int i = 0; i < Heads / bit / 2; ++i) {
      const float kept = odd ? products[2 * i + 1] : products[2 * i],
                  given = odd ? products[2 * i] : products[2 * i + 1];
      products[i] = kept + __shfl_xor_sync(all_lanes, given, bit);
    }
  }
  float sum = products[0];
#pragma unroll
  for (int bit = Heads; bit < Lanes; bit *= 2) sum += __shfl_xor_sync(all_lanes, sum, bit);
  return sum;
}

/// Combines one head's softmaxes of all groups of lanes of a warp; every group ends with the result.
template <int Lanes, int Columns>
__device__ __forceinline__ void join_groups(float& largest, float& sum, float (&values)[Columns]) {
#pragma unroll
  for (int bits = Lanes; bits < 32; bits *= 2) {
    const float theirs = __shfl_xor_sync(all_lanes, largest, bits), both = fmaxf(largest, theirs);
    const float own = weight_of(largest, both), other = weight_of(theirs, both);
    largest = both;
    sum = sum * own + __shfl_xor_sync(all_lanes, sum, bits) * other;
#pragma unroll
    for (int i = 0; i < Columns; ++i) values[i] = values[i] * own + __shfl_xor_sync(all_lanes, values[i], bits) * other;
  }
}

template <typename T, int Lanes, int Loads, int Heads, bool Aligned>
__global__ void __launch_bounds__(threads, 2) decode_kernel(DecodeAttention p) {
  constexpr int per = per_load<T>, columns = Loads * per, most_d = Lanes * columns;
  // Keys that a group of lanes has in flight: as many as registers allow besides what eight heads need.
  constexpr int at_once = Heads <= 4 ? (Loads == 1 ? 4 : 2) : Loads == 1 && Lanes > 8 ? 2 : 1;
  constexpr int groups = 32 / Lanes, chunk = groups * at_once;  // keys of a warp per iteration: at most a KV block
  static_assert(block_tokens % chunk == 0);
  PM_SHARED(float, joined, warps* most_d);
  PM_SHARED(float, largests, warps);
  PM_SHARED(float, sums, warps);
  const int64_t group = p.heads / p.kv_heads, head_groups = (group + Heads - 1) / Heads;
  const int64_t sequence = blockIdx.z, kv = blockIdx.y / head_groups, head_of_group = blockIdx.y % head_groups * Heads,
                head = kv * group + head_of_group;
  const int heads = static_cast<int>(group - head_of_group < Heads ? group - head_of_group : Heads);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            column = lane % Lanes * per;
  const int64_t row = p.rows ? p.rows[sequence] : sequence, keys = p.keys[sequence],
                query = p.contexts ? p.contexts[sequence] : keys - 1;
  const int64_t hidden = p.scores.window > 0 && query + 1 > p.scores.window ? query + 1 - p.scores.window : 0;
  const Pages pages = pages_of_split(keys, hidden, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));

  float q[Heads][columns], values[Heads][columns] = {};
  float largest = lowest, sum = 0;  // of head `own`, over the keys that this group of lanes has read
  const int own = lane % Heads, first_lane = lane / Lanes * Lanes;
#pragma unroll
  for (int h = 0; h < Heads; ++h) {
#pragma unroll
    for (int i = 0; i < columns; ++i) {
      const int64_t at = column + i / per * Lanes * per + i % per;
      q[h][i] = h < heads && at < p.d ? element_at(p.q, p.type, row * p.q_stride + (head + h) * p.d + at) : 0.f;
    }
  }

  const int32_t* table = p.tables + sequence * p.table_stride;
  const int mine = (pages.last - pages.first - warp + warps - 1) / warps;  // number of KV blocks of this warp
  for (int base = 0; base < mine; base += 32) {
    const int wanted = pages.first + (base + lane) * warps + warp;
    const int32_t entry =
        base + lane < mine ? table[wanted] : 0;  // 32 blocks ahead, so that no load of keys waits for the block table
    for (int turn = 0; turn < 32 && base + turn < mine; ++turn) {
      const int64_t place = __shfl_sync(all_lanes, entry, turn) * p.block_stride + kv * block_tokens * p.d;
      const int64_t page_key = static_cast<int64_t>(pages.first + (base + turn) * warps + warp) * block_tokens;
      const T *k_page = static_cast<const T*>(p.k_cache) + place, *v_page = static_cast<const T*>(p.v_cache) + place;
#pragma unroll 1
      for (int begin = 0; begin < block_tokens && page_key + begin < keys; begin += chunk) {
        uint4 k_words[at_once][Loads], v_words[at_once][Loads];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          const int token = begin + u * groups + lane / Lanes;
#pragma unroll
          for (int i = 0; i < Loads; ++i) {
            const int64_t at = column + i * Lanes * per, left = page_key + token < keys ? p.d - at : 0;
            k_words[u][i] = load_16<T, Aligned>(k_page + token * p.d + at, left);
            v_words[u][i] = load_16<T, Aligned>(v_page + token * p.d + at, left);
          }
        }
        float k_values[at_once][Loads][per], weights[at_once];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
#pragma unroll
          for (int i = 0; i < Loads; ++i) unpack<T>(k_words[u][i], k_values[u][i]);
        }
        const float before = largest;
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          float products[Heads] = {};
#pragma unroll
          for (int h = 0; h < Heads; ++h) {
#pragma unroll
            for (int i = 0; i < columns; ++i) products[h] += q[h][i] * k_values[u][i / per][i % per];
          }
          const float product = sum_of_own_head<Lanes>(products, lane);
          const int64_t key = page_key + begin + u * groups + lane / Lanes;
          const bool seen = key < keys && key >= hidden && own < heads;
          weights[u] = seen ? score_of(p.scores, product, head + own, query, key) : lowest;
          largest = fmaxf(largest, weights[u]);
        }
        const float kept = weight_of(before, largest);
        sum *= kept;
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
          weights[u] = weight_of(weights[u], largest);
          sum += weights[u];
        }
        float v_values[at_once][Loads][per];
#pragma unroll
        for (int u = 0; u < at_once; ++u) {
#pragma unroll
          for (int i = 0; i < Loads; ++i) unpack<T>(v_words[u][i], v_values[u][i]);
        }
#pragma unroll
        for (int h = 0; h < Heads; ++h) {
          const float kept_here = __shfl_sync(all_lanes, kept, first_lane + h);
#pragma unroll
          for (int i = 0; i < columns; ++i) values[h][i] *= kept_here;
#pragma unroll
          for (int u = 0; u < at_once; ++u) {
            const float weight = __shfl_sync(all_lanes, weights[u], first_lane + h);
#pragma unroll
            for (int i = 0; i < columns; ++i) values[h][i] += weight * v_values[u][i / per][i % per];
          }
        }
      }
    }
  }

#pragma unroll
  for (int h = 0; h < Heads; ++h) {
    float warp_largest = __shfl_sync(all_lanes, largest, first_lane + h),
          warp_sum = __shfl_sync(all_lanes, sum, first_lane + h);
    join_groups<Lanes>(warp_largest, warp_sum, values[h]);
    __syncthreads();  // the previous head has been read
    if (lane < Lanes) {
#pragma unroll
      for (int i = 0; i < columns; ++i) joined[warp * most_d + column + i / per * Lanes * per + i % per] = values[h][i];
    }
    if (lane == 0) largests[warp] = warp_largest, sums[warp] = warp_sum;
    __syncthreads();
    if (h >= heads) continue;
    float most = lowest, total = 0, shares[warps];
#pragma unroll
    for (int w = 0; w < warps; ++w) most = fmaxf(most, largests[w]);
#pragma unroll
    for (int w = 0; w < warps; ++w) {
      shares[w] = weight_of(largests[w], most);
      total += shares[w] * sums[w];
    }
    const int64_t part = (sequence * p.heads + head + h) * gridDim.x + blockIdx.x;
    for (int64_t i = threadIdx.x; i < p.d; i += threads) {
      float value = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) value += shares[w] * joined[w * most_d + i];
      if (gridDim.x > 1)
        p.parts[part * (p.d + 2) + 2 + i] = value;
      else
        put_element(p.out, p.type, (row * p.heads + head + h) * p.d + i, total > 0 ? value / total : 0.f);
    }
    if (gridDim.x > 1 && threadIdx.x == 0) p.parts[part * (p.d + 2)] = most, p.parts[part * (p.d + 2) + 1] = total;
  }
}

/// Combines the splits, a warp for each head of each sequence: rescales the parts [largest, sum, values] to one largest
/// score and adds them in the keys' order.
__global__ void __launch_bounds__(threads) combine_kernel(DecodeAttention p) {
  const int64_t which = static_cast<int64_t>(blockIdx.x) * warps + threadIdx.x / 32, stride = p.d + 2;
  if (which >= p.sequences * p.heads) return;
  const float* parts = p.parts + which * p.splits * stride;
  float largest = lowest, sum = 0;
  for (int64_t split = 0; split < p.splits; ++split) largest = fmaxf(largest, parts[split * stride]);
  for (int64_t split = 0; split < p.splits; ++split)
    sum += weight_of(parts[split * stride], largest) * parts[split * stride + 1];
  const int64_t sequence = which / p.heads, row = p.rows ? p.rows[sequence] : sequence;
  for (int64_t i = threadIdx.x % 32; i < p.d; i += 32) {
    float value = 0;
    for (int64_t split = 0; split < p.splits; ++split)
      value += weight_of(parts[split * stride], largest) * parts[split * stride + 2 + i];
    put_element(p.out, p.type, (row * p.heads + which % p.heads) * p.d + i, sum > 0 ? value / sum : 0.f);
  }
}

template <typename T, int Lanes, int Loads, int Heads, bool Aligned>
void start(const DecodeAttention& p, Stream stream) {
  const int64_t group = p.heads / p.kv_heads, head_groups = (group + Heads - 1) / Heads;
  auto* kernel = &decode_kernel<T, Lanes, Loads, Heads, Aligned>;
  const dim3 grid(static_cast<unsigned>(p.splits), static_cast<unsigned>(p.kv_heads * head_groups),
                  static_cast<unsigned>(p.sequences));
  PM_LAUNCH(kernel, grid, threads, 0, stream)(p);
}

/// Heads with more than eight columns in each lane leave registers for two query heads; else as many as there are, up
/// to eight, share a key.
template <typename T, int Lanes, int Loads>
void start_aligned(const DecodeAttention& p, Stream stream) {
  const int64_t group = p.heads / p.kv_heads;
  if constexpr (Loads * per_load<T> > 8) {
    group == 1 ? start<T, Lanes, Loads, 1, true>(p, stream) : start<T, Lanes, Loads, 2, true>(p, stream);
  } else {
    group == 1   ? start<T, Lanes, Loads, 1, true>(p, stream)
    : group <= 4 ? start<T, Lanes, Loads, 4, true>(p, stream)
                 : start<T, Lanes, Loads, 8, true>(p, stream);
  }
}

template <typename T>
void start_typed(const DecodeAttention& p, Stream stream) {
  const int64_t loads = (p.d + per_load<T> - 1) / per_load<T>;
  if (p.d % per_load<T> != 0 || p.block_stride % per_load<T> != 0 || !aligned_16(p.k_cache) || !aligned_16(p.v_cache)) {
    loads <= 32 ? start<T, 32, 1, 1, false>(p, stream) : start<T, 32, 512 / 32 / per_load<T>, 1, false>(p, stream);
  } else if (loads <= 8) {
    start_aligned<T, 8, 1>(p, stream);
  } else if (loads <= 16) {
    start_aligned<T, 16, 1>(p, stream);
  } else if (loads <= 32) {
    start_aligned<T, 32, 1>(p, stream);
  } else if (loads <= 64) {
    start_aligned<T, 32, 2>(p, stream);
  } else if constexpr (sizeof(T) == 4) {
    start_aligned<T, 32, 4>(p, stream);
  }
}

}  // namespace

int64_t decode_parts(const DecodeAttention& p) {
  return p.splits > 1 ? p.sequences * p.heads * p.splits * (p.d + 2) : 0;
}

int64_t decode_splits(int64_t sequences, int64_t heads, int64_t kv_heads, int64_t keys, int64_t multiprocessors) {
  const int64_t group = heads / kv_heads, blocks = sequences * kv_heads * ((group + 7) / 8),
                pages = (keys + block_tokens - 1) / block_tokens;
  const int64_t wanted = (4 * multiprocessors + blocks - 1) /
                         std::max<int64_t>(1, blocks);  // 4: thread blocks that a multiprocessor runs at once
  return std::clamp<int64_t>(
      wanted, 1,
      std::max<int64_t>(1,
                        pages / (2 * warps)));  // at least two KV blocks a warp, else launching costs more than reading
}

void decode_attention(const DecodeAttention& p, Stream stream) {
  constexpr const char* name = "decode_attention";
  require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, name,
          std::to_string(p.heads) + " heads over " + std::to_string(p.kv_heads) + " kv heads");
  require(p.d >= 1 && p.d <= 512, name, "heads of " + std::to_string(p.d) + " numbers; 1 to 512 are served");
  require(p.splits >= 1 && (p.splits == 1 || p.parts), name,
          std::to_string(p.splits) + " splits need room for their parts");
  if (p.sequences == 0) return;
  with_float(p.cache, name, [&](auto* t) { start_typed<std::remove_pointer_t<decltype(t)>>(p, stream); });
  check_launch(name);
  if (p.splits == 1) return;
  PM_LAUNCH(combine_kernel, static_cast<unsigned>((p.sequences * p.heads + warps - 1) / warps), threads, 0, stream)(p);
  check_launch(name);
}

}  // namespace pm::ops::cuda
