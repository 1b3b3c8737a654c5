// SPDX-License-Identifier: Apache-2.0
// The score arithmetic of attention.h's Scores, shared by all attention kernels.
#pragma once
#include "worker/ops/cuda/attention.h"
#include "worker/ops/cuda/device.cuh"

namespace pm::ops::cuda {

inline constexpr float lowest = -INFINITY;

__device__ __forceinline__ float rounded_bf16(float value) { return __bfloat162float(__float2bfloat16_rn(value)); }

/// Returns the score of query and key (positions) from their product, without masking.
__device__ __forceinline__ float score_of(const Scores& s, float product, int64_t head, int64_t query, int64_t key) {
  float score = product * s.scale;
  if (s.softcap > 0) score = s.softcap * tanhf(score / s.softcap);
  if (s.slopes) {
    float more = s.slopes_bf16 ? rounded_bf16(rounded_bf16(s.slopes[head]) * rounded_bf16(static_cast<float>(key)))
                               : s.slopes[head] * static_cast<float>(key);
    score += s.slopes_scaled ? more * s.scale : more;
  }
  if (s.relative) {
    int64_t distance = key - query;
    distance = distance < -s.reach ? -s.reach : distance > s.reach ? s.reach : distance;
    score += s.relative[head * (2 * s.reach + 1) + s.reach + distance];
  }
  return score;
}

/// Returns whether the query attends to the key, which must exist.
__device__ __forceinline__ bool sees(const Scores& s, int64_t query, int64_t key) {
  return (!s.causal || key <= query) && (s.window <= 0 || (key > query - s.window && key < query + s.window));
}

/// Returns exp(value - largest); 0 for a masked score, also where all scores so far are masked.
__device__ __forceinline__ float weight_of(float value, float largest) {
  return value == lowest ? 0.f : fast_exp(value - largest);
}

/// Returns what a head's sink adds to the sum of weights relative to the largest score. It is infinite where the sink
/// takes all, which makes results 0.
__device__ __forceinline__ float sink_weight(const Scores& s, int64_t head, float largest) {
  return s.sinks ? fast_exp(s.sinks[head] - largest) : 0.f;
}

}  // namespace pm::ops::cuda
