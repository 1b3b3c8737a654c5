// SPDX-License-Identifier: Apache-2.0
// Sampling kernel: one block a row. Thresholds of top_k and top_p are found by radix selection: histograms in shared
// memory, of numbers for top_k, of weights for top_p. No score costs arithmetic in fp64 or an atomic operation on 64
// bits, which shared memory has as a loop of compare-and-swap only.
#include "worker/ops/cuda/sample.h"

#include <limits>

#include "worker/ops/cuda/philox.cuh"
#include "worker/ops/cuda/weight.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int warps = 16, threads = 32 * warps;
constexpr int digit_bits = 9, digits = 1 << digit_bits;
static_assert(digits == threads);  // a thread adds up each digit
// The lanes of a warp add to `copies` histograms in turn. Only lanes of one warp collide at a counter, so histograms
// for each warp would not help where many scores are equal.
constexpr int copies = 8;
constexpr float bands_per_unit = 16;          // the first digit: distance from the best score in 1/16
constexpr float two_to_23 = 8388608.f;        // added to a float below it, the lowest mantissa bits are its integer
constexpr unsigned lowest_key = 0x007fffffu;  // of -inf

/// The answer of first_beyond(): a key, the sum of the amounts below it and that of its own scores.
struct Found {
  unsigned key;
  Sum below, here;
};

/// Shared memory of a block. A counter is 64 bits wide, as two words, where it adds weights.
struct Workspace {
  unsigned low[digits * copies], high[digits * copies];
  unsigned powers[power_steps];
  Sum sums[warps];
  unsigned tied[warps];
  unsigned digit;
  Found found;
  float floor;
};

/// Returns a key that sorts like the score; 0 and -0 are equal.
__device__ __forceinline__ unsigned key_of(float score) {
  const unsigned bits = __float_as_uint(score + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float score_of_key(unsigned key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

/// A row with its parameters, and the thresholds found so far.
struct Row {
  const float* scores;
  int count;
  RowSampling how;
  Divisor temperature;
  const unsigned* powers;
  float best;               ///< the best score, divided by the temperature
  float floor = -INFINITY;  ///< lower scores are dropped: top_k, later min_p too
  float pivot = -INFINITY;  ///< lower scores, and the first `dropped` equal ones, are dropped: top_p
  unsigned dropped = 0;

  __device__ __forceinline__ float score(float given) const { return temperature.quotient(given); }
  __device__ __forceinline__ Sum weight(float score) const { return weight_below(best, score, powers); }
  /// Returns the first digit of a score: higher scores have the same digit or a higher one; NaN has digit 0.
  __device__ __forceinline__ unsigned band(float score) const {
    constexpr unsigned last = digits - 1;
    return last - min(__float_as_uint(fmaf(best - score, bands_per_unit, two_to_23)) - 0x4b000000u, last);
  }
};

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

/// Calls visit(id, score as given) for ids first, first + Stride, ... below `end`. Eight loads are in flight.
template <int Stride, typename Visit>
__device__ __forceinline__ void each_score(const float* scores, int first, int end, Visit&& visit) {
  constexpr int at_once = 8;
  int id = first;
#pragma unroll 1
  for (; id + (at_once - 1) * Stride < end; id += at_once * Stride) {
    float given[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) given[i] = scores[id + i * Stride];
#pragma unroll
    for (int i = 0; i < at_once; ++i) visit(id + i * Stride, given[i]);
  }
#pragma unroll 1
  for (; id < end; id += Stride) visit(id, scores[id]);
}

/// Returns the smallest of the keys low .. high for which `holds` is true. It is false below that key and true from
/// there on, and it is not called for `high`. All lanes of a warp call the function and get the same result.
template <typename Holds>
__device__ __forceinline__ unsigned first_key(unsigned low, unsigned high, Holds&& holds) {
  const unsigned lane = threadIdx.x % 32;
  while (low < high) {
    const unsigned step = (high - low) / 32 + 1;
    const unsigned tried = min(low + step * (lane + 1) - 1, high);  // no key is within 32 of 2^32
    const unsigned yes = __ballot_sync(all_lanes, tried == high || holds(tried));
    const auto first = static_cast<unsigned>(__ffs(static_cast<int>(yes)) - 1);
    high = min(low + step * (first + 1) - 1, high);
    low += step * first;
  }
  return low;
}

/// Adds an amount to the counter of a digit: its weight, or 1.
template <bool Weighted>
__device__ __forceinline__ void add(Workspace& work, unsigned digit, Sum amount) {
  const unsigned at = digit * copies + threadIdx.x % copies;
  if constexpr (Weighted) {
    const auto low = static_cast<unsigned>(amount);
    const unsigned before = atomicAdd(&work.low[at], low);
    const unsigned high = static_cast<unsigned>(amount >> 32) + (before + low < low ? 1u : 0u);  // with the carry
    if (high != 0) atomicAdd(&work.high[at], high);
  } else {
    atomicAdd(&work.low[at], 1u);
  }
}

/// Returns the total of this thread's digit and sets its counters to 0.
__device__ __forceinline__ Sum take_digit(Workspace& work) {
  Sum low = 0, high = 0;
#pragma unroll
  for (int i = 0; i < copies; ++i) {
    const int at = static_cast<int>(threadIdx.x) * copies + i;
    low += work.low[at], high += work.high[at];
    work.low[at] = 0, work.high[at] = 0;
  }
  return low + (high << 32);
}

/// Finds the digit where the running sum from `below` first exceeds limit(total): sets work.digit, and the sums of
/// work.found. The last digit is taken where none does, as with scores that are NaN.
template <typename Limit>
__device__ __forceinline__ void choose_digit(Workspace& work, Sum below, Limit&& limit) {
  __syncthreads();  // all amounts are added
  const int warp = static_cast<int>(threadIdx.x / 32);
  const Sum own = take_digit(work);
  Sum running = warp_running(own), total = 0;
  if (threadIdx.x % 32 == 31) work.sums[warp] = running;
  __syncthreads();
  running += below;
  for (int w = 0; w < warps; ++w) {
    running += w < warp ? work.sums[w] : 0;
    total += work.sums[w];
  }
  const Sum most = limit(total);
  if (running - own <= most && (running > most || threadIdx.x == threads - 1)) {
    work.digit = threadIdx.x;
    work.found.below = running - own, work.found.here = own;
  }
  __syncthreads();
}

/// Finds, in the order of scores from the lowest, where the running sum of amounts first exceeds limit(total). The
/// amount of a score is its weight (0 below row.floor), or 1. All threads call the function and get the same result.
template <bool Weighted, typename Limit>
__device__ __forceinline__ Found first_beyond(const Row& row, Workspace& work, Limit&& limit) {
  const auto amount = [&](float score) -> Sum {
    if constexpr (Weighted)
      return score >= row.floor ? row.weight(score) : 0;
    else
      return 1;
  };
  Sum most = 0;
  each_score<threads>(row.scores, static_cast<int>(threadIdx.x), row.count, [&](int, float given) {
    const float score = row.score(given);
    if (const Sum some = amount(score); some > 0) add<Weighted>(work, row.band(score), some);
  });
  choose_digit(work, 0, [&](Sum total) { return most = limit(total); });

  // The digits that follow divide the keys of that band evenly.
  const unsigned band = work.digit, best_key = key_of(row.best);
  unsigned low = first_key(lowest_key, best_key, [&](unsigned key) { return row.band(score_of_key(key)) >= band; });
  unsigned high = band == digits - 1 ? best_key : first_key(lowest_key, best_key, [&](unsigned key) {
                                                    return row.band(score_of_key(key)) > band;
                                                  }) - 1;
  while (low < high) {
    const unsigned width = high - low;
    const int bits = 32 - __clz(static_cast<int>(width)), shift = bits > digit_bits ? bits - digit_bits : 0;
    const float lowest = score_of_key(low), highest = score_of_key(high);
    each_score<threads>(row.scores, static_cast<int>(threadIdx.x), row.count, [&](int, float given) {
      const float score = row.score(given);
      if (!(score >= lowest && score <= highest)) return;
      const unsigned offset = key_of(score) - low;
      if (offset > width) return;  // -0 and 0 are equal, but their keys are not
      if (const Sum some = amount(score); some > 0) add<Weighted>(work, offset >> shift, some);
    });
    choose_digit(work, work.found.below, [&](Sum) { return most; });
    low += work.digit << shift;
    high = min(high, low + (1u << shift) - 1);
  }
  Found found = work.found;
  found.key = low;
  __syncthreads();  // `found` is read before it is written again
  return found;
}

/// Returns the best score as given and its smallest id to all threads.
__device__ __forceinline__ float find_best(const float* scores, int count, int& id) {
  PM_SHARED(float, bests, warps);
  PM_SHARED(int, ids, warps);
  float best = -INFINITY;
  id = count;
  each_score<threads>(scores, static_cast<int>(threadIdx.x), count, [&](int i, float given) {
    if (given > best) best = given, id = i;
  });
  const auto take = [&](float other, int other_id) {
    if (other > best || (other == best && other_id < id)) best = other, id = other_id;
  };
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) {
    const float other = __shfl_xor_sync(all_lanes, best, bits);
    const int other_id = __shfl_xor_sync(all_lanes, id, bits);
    take(other, other_id);
  }
  if (threadIdx.x % 32 == 0) bests[threadIdx.x / 32] = best, ids[threadIdx.x / 32] = id;
  __syncthreads();
  for (int w = 0; w < warps; ++w) take(bests[w], ids[w]);
  if (best == -INFINITY) id = 0;  // all tokens are banned: token 0 is returned
  return best;
}

/// Sets the threshold of top_p.
__device__ __forceinline__ void find_tail(Row& row, Workspace& work) {
  Sum limit = 0;
  const Found found = first_beyond<true>(row, work, [&](Sum total) {
    limit = static_cast<Sum>(static_cast<double>(total) * (1 - row.how.top_p));
    // The best score always stays, and of equal ones the last: the dropped tail ends before it.
    limit = limit < total - 1 ? limit : total - 1;
    return limit;
  });
  row.pivot = score_of_key(found.key);
  const Sum each = row.weight(row.pivot);
  if (each == 0) return;
  const Sum equals = found.here / each, fit = (limit - found.below) / each;
  row.dropped = static_cast<unsigned>(fit < equals ? fit : equals - 1);
}

/// Raises the threshold to the lowest score that min_p keeps.
__device__ __forceinline__ void apply_min_p(Row& row, Workspace& work) {
  if (threadIdx.x < 32) {  // a few exponentials in fp64, as the host has them
    const unsigned key = first_key(lowest_key, key_of(row.best), [&](unsigned tried) {
      return !(exp(static_cast<double>(score_of_key(tried)) - static_cast<double>(row.best)) < row.how.min_p);
    });
    if (threadIdx.x == 0) work.floor = score_of_key(key);
  }
  __syncthreads();
  row.floor = fmaxf(row.floor, work.floor);
}

/// Returns how many of the ties at the pivot are kept, of `tied` that follow `before` earlier ones.
__device__ __forceinline__ unsigned kept_ties(const Row& row, unsigned before, unsigned tied) {
  const unsigned dropped = row.dropped > before ? row.dropped - before : 0;
  return tied > dropped ? tied - dropped : 0;
}

/// Returns the first id whose running weight, in order of ids, exceeds the random share of the total; -1 without one.
/// The ids are divided among the warps until a warp has 32. The result is that of warp 0.
__device__ __forceinline__ int choose_id(const Row& row, Workspace& work) {
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  const Sum tie_weight = row.pivot >= row.floor ? row.weight(row.pivot) : 0;
  const auto is_above = [&](float score) { return score >= row.floor && score > row.pivot; };
  int begin = 0, end = row.count;
  unsigned ties = 0;  // in front of `begin`
  Sum target = 0;     // from `begin` on
  for (bool first = true; first || end - begin > 32; first = false) {
    const int each = (end - begin + warps * 32 - 1) / (warps * 32) * 32;
    const int from = min(begin + warp * each, end), to = min(from + each, end);
    Sum own = 0;
    unsigned tied = 0;
    each_score<32>(row.scores, from + lane, to, [&](int, float given) {
      const float score = row.score(given);
      if (is_above(score)) own += row.weight(score);
      if (score == row.pivot) ++tied;
    });
    own = warp_total(own), tied = warp_total(tied);
    if (lane == 0) work.sums[warp] = own, work.tied[warp] = tied;
    __syncthreads();
    const auto total_of = [&](int w, unsigned before) {
      return work.sums[w] + kept_ties(row, before, work.tied[w]) * tie_weight;
    };
    if (first) {
      Sum total = 0;
      unsigned before = 0;
      for (int w = 0; w < warps; before += work.tied[w++]) total += total_of(w, before);
      target = static_cast<Sum>(uniform(row.how.seed, row.how.sequence, row.how.position) * static_cast<double>(total));
      target = target < total ? target : total - 1;  // where fp64 rounds up to the total
    }
    int part = 0;
    for (; part < warps - 1; ++part) {
      const Sum total = total_of(part, ties);
      if (target < total) break;
      target -= total;
      ties += work.tied[part];
    }
    begin = min(begin + part * each, end);
    end = min(begin + each, end);
    __syncthreads();  // the sums are read before they are written again
  }
  const int id = begin + lane;
  const float score = id < end ? row.score(row.scores[id]) : -INFINITY;
  const bool tied = id < end && score == row.pivot;
  const unsigned all_tied = __ballot_sync(all_lanes, tied);
  const unsigned rank = ties + static_cast<unsigned>(__popc(all_tied & ((1u << lane) - 1)));
  const Sum weight = is_above(score) ? row.weight(score) : tied && rank >= row.dropped ? tie_weight : 0;
  const unsigned beyond = __ballot_sync(all_lanes, warp_running(weight) > target);
  return beyond == 0 ? -1 : begin + __ffs(static_cast<int>(beyond)) - 1;
}

__global__ void __launch_bounds__(threads, 1) sample_kernel(Sample p) {
  begin_after_previous();
  PM_SHARED(Workspace, memory, 1);
  Workspace& work = *memory;
  Row row{.scores = p.scores + static_cast<int64_t>(blockIdx.x) * p.score_stride,
          .count = static_cast<int>(p.vocabulary),
          .how = p.sampling[blockIdx.x],
          .temperature = {},
          .powers = work.powers,
          .best = 0};
  int best_id = 0;
  const float best = find_best(row.scores, row.count, best_id);
  if (threadIdx.x == 0) p.ids[blockIdx.x] = best_id;
  if (!row.how.sample || best == -INFINITY) return;
  row.temperature = Divisor(row.how.temperature);
  row.best = row.score(best);
  if (!(row.best > -INFINITY)) return;  // no number, by a temperature whose inverse is none
  make_powers(work.powers);
  take_digit(work);  // the counters begin at 0
  __syncthreads();
  if (row.how.top_k > 0 && row.how.top_k < row.count) {
    const auto others = static_cast<Sum>(row.count - row.how.top_k);
    row.floor = score_of_key(first_beyond<false>(row, work, [&](Sum) { return others; }).key);
  }
  if (row.how.top_p < 1) find_tail(row, work);
  if (row.how.min_p > 0) apply_min_p(row, work);
  const int id = choose_id(row, work);
  if (threadIdx.x == 0 && id >= 0) p.ids[blockIdx.x] = id;
}

__global__ void __launch_bounds__(threads) best_kernel(BestScores p) {
  begin_after_previous();
  const int64_t row = blockIdx.x;
  int id = 0;
  const float best = find_best(p.scores + row * p.score_stride, static_cast<int>(p.vocabulary), id);
  if (threadIdx.x == 0) p.values[row] = best, p.ids[row] = id;
}

constexpr int edit_threads = 128;
constexpr int64_t edit_blocks = 64;  // enough for all scores of a step that penalties change

__global__ void __launch_bounds__(edit_threads) edit_kernel(EditScores p) {
  begin_after_previous();
  const int count = *p.count;
  for (int i = static_cast<int>(blockIdx.x) * edit_threads + static_cast<int>(threadIdx.x); i < count;
       i += static_cast<int>(gridDim.x) * edit_threads) {
    const RowEdit one = p.edits[i];
    float& score = p.scores[one.row * p.score_stride + one.edit.id];
    const float edited = score < 0 ? __fmul_rn(score, one.edit.factor) : score / one.edit.factor;
    score = edited - one.edit.subtrahend;  // rounded twice, as on the host: the product is not fused with it
  }
}

}  // namespace

void edit_scores(const EditScores& p, Stream stream) {
  if (p.capacity == 0) return;
  const auto blocks = static_cast<unsigned>(std::min((p.capacity + edit_threads - 1) / edit_threads, edit_blocks));
  PM_LAUNCH(edit_kernel, blocks, edit_threads, 0, stream)(p);
  check_launch("edit_scores");
}

void sample(const Sample& p, Stream stream) {
  require(p.vocabulary >= 1 && p.vocabulary <= max_sample_vocabulary, "sample",
          "a vocabulary of " + std::to_string(p.vocabulary) + "; 1 to " + std::to_string(max_sample_vocabulary) +
              " are supported");
  if (p.rows == 0) return;
  PM_LAUNCH(sample_kernel, static_cast<unsigned>(p.rows), threads, 0, stream)(p);
  check_launch("sample");
}

void best_scores(const BestScores& p, Stream stream) {
  require(p.vocabulary >= 1 && p.vocabulary <= std::numeric_limits<int>::max(), "best_scores",
          "a vocabulary of " + std::to_string(p.vocabulary));
  if (p.rows == 0) return;
  PM_LAUNCH(best_kernel, static_cast<unsigned>(p.rows), threads, 0, stream)(p);
  check_launch("best_scores");
}

}  // namespace pm::ops::cuda
