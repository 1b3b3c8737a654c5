// SPDX-License-Identifier: Apache-2.0
// Sampling kernel: one block a row. Thresholds are found by radix selection on the bits of the logits, as numbers that
// sort like the logits, eight bits at a time from the top.
#include "worker/ops/cuda/philox.cuh"
#include "worker/ops/cuda/sample.h"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 16, threads = 32 * warps, digits = 256;
constexpr double one = 17592186044416.0;  // 2^44: a weight of 1
using Sum = unsigned long long;

/// A row with its parameters, and the thresholds found so far.
struct Row {
  const float* scores;
  int64_t count;
  RowSampling how;
  float best;
  unsigned least = 0;  ///< keys below are dropped: top_k
  unsigned pivot = 0;  ///< keys below, and the first `dropped` equal ones, are dropped: top_p
  Sum dropped = 0;

  __device__ __forceinline__ float score(int64_t id) const {
    const float given = scores[id];
    return how.sample && how.temperature != 1 ? static_cast<float>(static_cast<double>(given) / how.temperature)
                                              : given;
  }
  __device__ __forceinline__ double likely(float score) const {
    return exp(static_cast<double>(score) - static_cast<double>(best));
  }
  __device__ __forceinline__ Sum weight(float score) const {
    return score == -INFINITY ? 0 : static_cast<Sum>(likely(score) * one + 0.5);
  }
  /// Returns whether a logit passes min_p; -inf never does.
  __device__ __forceinline__ bool likely_enough(float score) const {
    return score != -INFINITY && (how.min_p <= 0 || score == best || !(likely(score) < how.min_p));
  }
};

/// Returns a key that sorts like the score; 0 and -0 are equal.
__device__ __forceinline__ unsigned key_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float score_of_key(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

template <typename T>
__device__ __forceinline__ T warp_total(T value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(all_lanes, value, bits);
  return value;
}
/// Returns the prefix sum of the lanes' values, including this lane's.
__device__ __forceinline__ Sum warp_running(Sum value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int by = 1; by < 32; by *= 2) {
    const Sum before = __shfl_up_sync(all_lanes, value, by);
    if (lane >= by) value += before;
  }
  return value;
}

/// Finds, in the order of keys, where the running sum of amounts first exceeds a limit: that key, the sum below it and
/// the amount of that key.
struct Found {
  unsigned key;
  Sum below, here;
  int found;
};

/// amount(id, key) returns the amount of an id and sets its key. All threads call the function and get the same result.
template <typename Amount>
__device__ __forceinline__ Found first_beyond(Sum limit, int64_t count, Amount&& amount) {
  PM_SHARED(Sum, bins, digits);
  PM_SHARED(Found, result, 1);
  Found found{0, 0, 0, 1};
  for (int shift = 24; shift >= 0 && found.found; shift -= 8) {
    for (int i = static_cast<int>(threadIdx.x); i < digits; i += threads) bins[i] = 0;
    __syncthreads();
    for (int64_t id = threadIdx.x; id < count; id += threads) {
      unsigned key = 0;
      const Sum some = amount(id, key);
      if (some > 0 && (shift == 24 || (key ^ found.key) >> (shift + 8) == 0))
        atomicAdd(&bins[key >> shift & 255u], some);
    }
    __syncthreads();
    if (threadIdx.x < 32) {
      constexpr int of_lane = digits / 32;
      const int lane = static_cast<int>(threadIdx.x);
      Sum own = 0;
#pragma unroll
      for (int i = 0; i < of_lane; ++i) own += bins[lane * of_lane + i];
      const Sum running = found.below + warp_running(own);
      const unsigned beyond = __ballot_sync(all_lanes, running > limit);
      if (beyond == 0 && lane == 0) *result = {0, 0, 0, 0};
      if (beyond != 0 && lane == __ffs(static_cast<int>(beyond)) - 1) {
        Sum below = running - own;
        int digit = lane * of_lane;
        while (below + bins[digit] <= limit) below += bins[digit++];
        *result = {found.key | static_cast<unsigned>(digit) << shift, below, bins[digit], 1};
      }
    }
    __syncthreads();
    found = *result;
  }
  return found;
}

/// Returns the best score and its smallest id to all threads.
__device__ __forceinline__ void find_best(Row& row, int64_t& id) {
  PM_SHARED(float, bests, warps);
  PM_SHARED(int64_t, ids, warps);
  float best = -INFINITY;
  id = row.count;
  for (int64_t i = threadIdx.x; i < row.count; i += threads) {
    const float score = row.score(i);
    if (score > best) best = score, id = i;
  }
  const auto take = [&](float other, int64_t other_id) {
    if (other > best || (other == best && other_id < id)) best = other, id = other_id;
  };
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) {
    const float other = __shfl_xor_sync(all_lanes, best, bits);
    const int64_t other_id = __shfl_xor_sync(all_lanes, id, bits);
    take(other, other_id);
  }
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best, ids[threadIdx.x / 32] = id;
  __syncthreads();
  for (int w = 0; w < warps; ++w) take(bests[w], ids[w]);
  row.best = best;
  if (best == -INFINITY) id = 0;  // all tokens are banned: token 0 is returned
}

/// Sets the threshold of top_p.
__device__ __forceinline__ void find_tail(Row& row) {
  PM_SHARED(Sum, totals, warps);
  const auto amount = [&](int64_t id, unsigned& key) -> Sum {
    const float score = row.score(id);
    key = key_of(score);
    return key < row.least ? 0 : row.weight(score);
  };
  Sum total = 0;
  unsigned key = 0;
  for (int64_t id = threadIdx.x; id < row.count; id += threads) total += amount(id, key);
  total = warp_total(total);
  if (threadIdx.x % 32 == 0) totals[threadIdx.x / 32] = total;
  __syncthreads();
  total = 0;
  for (int w = 0; w < warps; ++w) total += totals[w];
  const auto limit = static_cast<Sum>(static_cast<double>(total) * (1 - row.how.top_p));
  // The best score always stays, and of equal ones the last: the dropped tail ends before it.
  const Found found = first_beyond(limit < total - 1 ? limit : total - 1, row.count, amount);
  row.pivot = found.key;
  const Sum each = row.weight(score_of_key(found.key)), equals = found.here / each, fit = (limit - found.below) / each;
  row.dropped = fit < equals ? fit : equals - 1;
}

/// Visits a warp's part of the row in order of ids, 32 at a time: visit(id, weight), with weight 0 for dropped ids.
/// `equal` counts the row's earlier scores at the pivot.
template <typename Visit>
__device__ __forceinline__ void walk(const Row& row, int64_t begin, int64_t end, Sum equal, Visit&& visit) {
  const unsigned lane = threadIdx.x % 32;
  for (int64_t base = begin; base < end; base += 32) {
    const int64_t id = base + lane;
    const float score = id < end ? row.score(id) : -INFINITY;
    const unsigned key = key_of(score);
    const bool tied = score != -INFINITY && key == row.pivot;
    const unsigned ties = __ballot_sync(all_lanes, tied);
    const Sum rank = equal + static_cast<Sum>(__popc(ties & ((1u << lane) - 1)));
    equal += static_cast<Sum>(__popc(ties));
    const bool in = row.likely_enough(score) && key >= row.least && (key > row.pivot || (tied && rank >= row.dropped));
    if (!visit(id, in ? row.weight(score) : 0)) return;
  }
}

__global__ void __launch_bounds__(threads, 1) sample_kernel(Sample p) {
  PM_SHARED(Sum, equals, warps);
  PM_SHARED(Sum, weights, warps);
  Row row{p.scores + static_cast<int64_t>(blockIdx.x) * p.score_stride, p.vocabulary, p.sampling[blockIdx.x], 0};
  int64_t best = 0;
  find_best(row, best);
  if (!row.how.sample || row.best == -INFINITY) {
    if (threadIdx.x == 0) p.ids[blockIdx.x] = static_cast<int32_t>(best);
    return;
  }
  if (row.how.top_k > 0 && row.how.top_k < row.count) {
    const Found found =
        first_beyond(static_cast<Sum>(row.how.top_k - 1), row.count, [&](int64_t id, unsigned& key) -> Sum {
          key = ~key_of(row.score(id));
          return 1;
        });
    row.least = ~found.key;
  }
  if (row.how.top_p < 1) find_tail(row);

  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const int64_t each = (row.count + warps * 32 - 1) / (warps * 32) * 32;
  const int64_t begin = warp * each < row.count ? warp * each : row.count,
                end = begin + each < row.count ? begin + each : row.count;
  Sum own = 0;
  if (row.dropped > 0) {
    for (int64_t id = begin + lane; id < end; id += 32) own += key_of(row.score(id)) == row.pivot ? 1 : 0;
  }
  own = warp_total(own);
  if (lane == 0) equals[warp] = own;
  __syncthreads();
  Sum equal = 0;
  for (int w = 0; w < warp; ++w) equal += equals[w];
  own = 0;
  walk(row, begin, end, equal, [&](int64_t, Sum weight) {
    own += weight;
    return true;
  });
  own = warp_total(own);
  if (lane == 0) weights[warp] = own;
  __syncthreads();
  Sum before = 0, total = 0;
  for (int w = 0; w < warps; ++w) {
    if (w < warp) before += weights[w];
    total += weights[w];
  }
  const auto target =
      static_cast<Sum>(uniform(row.how.seed, row.how.sequence, row.how.position) * static_cast<double>(total));
  if (target < before || target >= before + own) return;  // another warp has the token
  walk(row, begin, end, equal, [&](int64_t id, Sum weight) {
    const Sum running = before + warp_running(weight);
    const unsigned beyond = __ballot_sync(all_lanes, running > target);
    if (beyond != 0 && lane == __ffs(static_cast<int>(beyond)) - 1) p.ids[blockIdx.x] = static_cast<int32_t>(id);
    before = __shfl_sync(all_lanes, running, 31);
    return beyond == 0;
  });
}

}  // namespace

void sample(const Sample& p, Stream stream) {
  require(p.vocabulary >= 1 && p.vocabulary <= (int64_t{1} << 19), "sample",
          "a vocabulary of " + std::to_string(p.vocabulary) + "; 1 to 2^19 are served");
  if (p.rows == 0) return;
  PM_LAUNCH(sample_kernel, static_cast<unsigned>(p.rows), threads, 0, stream)(p);
  check_launch("sample");
}

}  // namespace pm::ops::cuda
