// SPDX-License-Identifier: Apache-2.0
// Decode attention: which kernel serves a launch, in how many splits, and how their results are combined. The kernel
// here is for fp32 caches and for heads that the tensor cores do not take (decode_mma.cu). A block of it has some query
// heads of one kv head and a split of one sequence's keys; its warps take blocks of 16 keys in turn. In a warp, `Lanes`
// lanes share a key, each 16 bytes or `Loads` times 16 bytes of it, and each group of lanes keeps a softmax of its own
// until the end, so that the loop exchanges data within a group only. Each key and value is read once for all `Heads`
// heads. The scores and weights of a head are computed by the lanes whose number is the head's modulo `Heads`, and
// broadcast to the others.
#include "worker/ops/cuda/decode.cuh"

namespace pm::ops::cuda {

namespace {

using decode::block_heads;
using decode::threads;
using decode::warps;

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
  begin_after_previous();
  constexpr int per = per_load<T>, columns = Loads * per, most_d = Lanes * columns;
  // Keys that a group of lanes has in flight: as many as registers allow besides what eight heads need.
  constexpr int at_once = Heads <= 4 ? (Loads == 1 ? 4 : 2) : Loads == 1 && Lanes > 8 ? 2 : 1;
  constexpr int groups = 32 / Lanes, chunk = groups * at_once;  // keys of a warp per iteration: at most a KV block
  static_assert(block_tokens % chunk == 0);
  const int64_t sequence = blockIdx.z;
  const Split split(p, sequence, static_cast<int>(blockIdx.x));
  if (static_cast<int>(blockIdx.x) >= split.used) return;
  PM_SHARED(float, joined, warps* most_d);
  PM_SHARED(float, ends, warps * 2);
  const int group = static_cast<int>(p.heads) / static_cast<int>(p.kv_heads), head_groups = (group + Heads - 1) / Heads,
            index = static_cast<int>(blockIdx.y);
  const int kv = index / head_groups, head_of_group = index % head_groups * Heads,
            heads = group - head_of_group < Heads ? group - head_of_group : Heads;
  const int64_t head = kv * group + head_of_group, row = p.rows ? p.rows[sequence] : sequence;
  const int64_t keys = split.keys, query = split.query, hidden = split.hidden;
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            column = lane % Lanes * per;

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
  const int mine = (split.last - split.first - warp + warps - 1) / warps;  // number of KV blocks of this warp
  for (int base = 0; base < mine; base += 32) {
    const int wanted = split.first + (base + lane) * warps + warp;
    const int32_t entry =
        base + lane < mine ? table[wanted] : 0;  // 32 blocks ahead, so that no load of keys waits for the block table
    for (int turn = 0; turn < 32 && base + turn < mine; ++turn) {
      const int64_t place = __shfl_sync(all_lanes, entry, turn) * p.block_stride + kv * block_tokens * p.d;
      const int64_t page_key = static_cast<int64_t>(split.first + (base + turn) * warps + warp) * block_tokens;
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
    if (lane == 0) ends[2 * warp] = warp_largest, ends[2 * warp + 1] = warp_sum;
    __syncthreads();
    if (h < heads) store_head(p, split, sequence, row, head + h, {ends, joined, 2, most_d});
  }
}

/// Combines the splits of a head of a sequence, 128 columns a block: rescales the parts to one largest score and adds
/// them. A warp takes every fourth split, its lanes compute the shares of 32 of them at once; the warps' sums are added
/// in order.
__global__ void __launch_bounds__(threads) combine_kernel(DecodeAttention p) {
  let_next_start();
  constexpr int lanes = 32, columns = threads, per_lane = columns / lanes;
  const int64_t head = blockIdx.x, sequence = blockIdx.y;
  const int used = Split(p, sequence, 0).used;
  wait_for_previous();
  if (used == 1) return;  // the decode kernel has stored the result
  PM_SHARED(float, values, warps* columns);
  PM_SHARED(float, sums, warps);
  const Parts parts(p, sequence, head);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32),
            d = static_cast<int>(p.d), begin = static_cast<int>(blockIdx.z) * columns;
  float largest = lowest;
  for (int i = lane; i < used; i += lanes) largest = fmaxf(largest, parts.ends[2 * i]);
  largest = warp_max(largest);
  float sum = 0, value[per_lane] = {};
  int of_lane[per_lane];  // columns; those beyond the last repeat it
#pragma unroll
  for (int c = 0; c < per_lane; ++c) of_lane[c] = min(begin + lane + c * lanes, d - 1);
  for (int base = warp; base < used; base += lanes * warps) {
    const int mine = base + lane * warps, left = (used - base + warps - 1) / warps, count = left < lanes ? left : lanes;
    const float share = mine < used ? weight_of(parts.ends[2 * mine], largest) : 0.f;
    if (mine < used) sum += share * parts.ends[2 * mine + 1];
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const float of_split = __shfl_sync(all_lanes, share, i);
      const float* from = parts.values + static_cast<int64_t>(base + i * warps) * d;
#pragma unroll
      for (int c = 0; c < per_lane; ++c) value[c] += of_split * from[of_lane[c]];
    }
  }
  sum = warp_sum(sum);
  if (lane == 0) sums[warp] = warp == 0 ? sum + sink_weight(p.scores, head, largest) : sum;
#pragma unroll
  for (int c = 0; c < per_lane; ++c) values[warp * columns + c * lanes + lane] = value[c];
  __syncthreads();
  const int column = begin + static_cast<int>(threadIdx.x);
  if (column >= d) return;
  float total = 0, result = 0;
#pragma unroll
  for (int w = 0; w < warps; ++w) {
    total += sums[w];
    result += values[w * columns + static_cast<int>(threadIdx.x)];
  }
  const int64_t row = p.rows ? p.rows[sequence] : sequence;
  put_element(p.out, p.type, (row * p.heads + head) * p.d + column, total > 0 ? result / total : 0.f);
}

template <typename T, int Lanes, int Loads, int Heads, bool Aligned>
DecodeKernel variant() {
  return {&decode_kernel<T, Lanes, Loads, Heads, Aligned>, Heads};
}

/// Heads with more than eight columns in each lane leave registers for two query heads; else as many as there are, up
/// to eight, share a key.
template <typename T, int Lanes, int Loads>
DecodeKernel aligned_variant(int64_t group) {
  if constexpr (Loads * per_load<T> > 8) {
    return group == 1 ? variant<T, Lanes, Loads, 1, true>() : variant<T, Lanes, Loads, 2, true>();
  } else {
    return group == 1   ? variant<T, Lanes, Loads, 1, true>()
           : group <= 4 ? variant<T, Lanes, Loads, 4, true>()
                        : variant<T, Lanes, Loads, block_heads, true>();
  }
}

/// The kernel of this file for p. The tensor cores have 16-bit heads of at most 256 aligned elements.
template <typename T>
DecodeKernel typed_kernel(const DecodeAttention& p) {
  const int64_t loads = (p.d + per_load<T> - 1) / per_load<T>, group = p.heads / p.kv_heads;
  if (p.d % per_load<T> != 0 || p.block_stride % per_load<T> != 0 || !aligned_16(p.k_cache) || !aligned_16(p.v_cache))
    return loads <= 32 ? variant<T, 32, 1, 1, false>() : variant<T, 32, 512 / 32 / per_load<T>, 1, false>();
  if constexpr (sizeof(T) == 2) {
    return aligned_variant<T, 32, 2>(group);
  } else {
    return loads <= 8    ? aligned_variant<T, 8, 1>(group)
           : loads <= 16 ? aligned_variant<T, 16, 1>(group)
           : loads <= 32 ? aligned_variant<T, 32, 1>(group)
           : loads <= 64 ? aligned_variant<T, 32, 2>(group)
                         : aligned_variant<T, 32, 4>(group);
  }
}

DecodeKernel kernel_for(const DecodeAttention& p) {
  if (decode_uses_tensor_cores(p)) return tensor_core_kernel(p);
  DecodeKernel kernel{};
  with_float(p.cache, "decode_attention",
             [&](auto* t) { kernel = typed_kernel<std::remove_pointer_t<decltype(t)>>(p); });
  return kernel;
}

/// Returns the thread blocks of one split.
int64_t blocks_of_split(const DecodeAttention& p, const DecodeKernel& kernel) {
  return p.sequences * p.kv_heads * ((p.heads / p.kv_heads + kernel.heads - 1) / kernel.heads);
}

void check_shape(const DecodeAttention& p) {
  constexpr const char* name = "decode_attention";
  require(p.kv_heads > 0 && p.heads % p.kv_heads == 0, name,
          std::to_string(p.heads) + " heads over " + std::to_string(p.kv_heads) + " kv heads");
  require(p.d >= 1 && p.d <= 512, name, "heads of " + std::to_string(p.d) + " numbers; 1 to 512 are served");
}

}  // namespace

int64_t decode_parts(const DecodeAttention& p) {
  return p.splits > 1 ? p.sequences * p.heads * p.splits * (p.d + 2) : 0;
}

int64_t decode_splits(int64_t blocks, int64_t places, int64_t keys) {
  constexpr double enough = 0.9;
  constexpr int64_t max_waves = 4;  // beyond them a last wave that is not full costs little
  blocks = std::max<int64_t>(1, blocks), places = std::max<int64_t>(1, places);
  const int64_t most = std::clamp<int64_t>(max_waves * places / blocks, 1, decode::max_splits),
                needed = (keys + decode::min_blocks * block_tokens - 1) / (decode::min_blocks * block_tokens);
  int64_t best = 1;
  double best_share = 0;
  for (int64_t splits = 1; splits <= most && best_share < enough; ++splits) {
    const int64_t all = blocks * splits, waves = (all + places - 1) / places;
    const double share = static_cast<double>(all) / static_cast<double>(waves * places);
    if (share > best_share) best = splits, best_share = share;
  }
  return std::clamp<int64_t>(needed, 1, best);
}

int64_t decode_splits(const DecodeAttention& p, int64_t keys, int64_t multiprocessors) {
  check_shape(p);
  const DecodeKernel kernel = kernel_for(p);
  return decode_splits(blocks_of_split(p, kernel),
                       multiprocessors * resident_blocks("decode_attention", kernel.launch, threads), keys);
}

void decode_attention(const DecodeAttention& p, Stream stream) {
  constexpr const char* name = "decode_attention";
  check_shape(p);
  require(p.splits >= 1 && p.splits <= decode::max_splits && (p.splits == 1 || p.parts), name,
          std::to_string(p.splits) + " splits; 1 to " + std::to_string(decode::max_splits) +
              " are served, with room for their parts");
  if (p.sequences == 0) return;
  const DecodeKernel kernel = kernel_for(p);
  const dim3 grid(static_cast<unsigned>(p.splits), static_cast<unsigned>(blocks_of_split(p, kernel) / p.sequences),
                  static_cast<unsigned>(p.sequences));
  PM_LAUNCH(kernel.launch, grid, threads, 0, stream)(p);
  check_launch(name);
  if (p.splits == 1) return;
  const dim3 heads(static_cast<unsigned>(p.heads), static_cast<unsigned>(p.sequences),
                   static_cast<unsigned>((p.d + threads - 1) / threads));
  PM_LAUNCH(combine_kernel, heads, threads, 0, stream)(p);
  check_launch(name);
}

}  // namespace pm::ops::cuda
