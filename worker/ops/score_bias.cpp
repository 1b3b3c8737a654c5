// SPDX-License-Identifier: Apache-2.0
// Computes ALiBi and T5's relative position bias.
#include "worker/ops/score_bias.h"

#include <ATen/ATen.h>

#include <cmath>

namespace pm::ops {

at::Tensor alibi_slopes(int64_t heads) {
  std::vector<float> slopes;
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double base = std::exp2(-8.0 / static_cast<double>(power)),
               between = std::exp2(-4.0 / static_cast<double>(power));
  for (int64_t i = 1; i <= power; ++i) slopes.push_back(static_cast<float>(std::pow(base, i)));
  for (int64_t i = 1; static_cast<int64_t>(slopes.size()) < heads; i += 2)
    slopes.push_back(static_cast<float>(std::pow(between, i)));
  return at::tensor(slopes, at::kFloat);
}

at::Tensor relative_buckets(const at::Tensor& distance, int64_t buckets, int64_t max_distance, bool bidirectional) {
  at::Tensor bucket = at::zeros_like(distance), away = at::neg(distance.clamp_max(0));
  if (bidirectional) {
    buckets /= 2;
    bucket = (distance > 0).to(at::kLong) * buckets;
    away = distance.abs();
  }
  const int64_t exact = buckets / 2;
  // This is T5's own order of fp32 operations, so that the bucket edges are the same.
  const at::Tensor ratio =
      at::log(away.to(at::kFloat) / exact) / std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const at::Tensor beyond = (exact + (ratio * (buckets - exact)).to(at::kLong)).clamp_max(buckets - 1);
  return bucket + at::where(away < exact, away, beyond);
}

namespace {

at::Tensor alibi(const AttentionOptions& options, int64_t keys, const at::TensorOptions& whole) {
  const AlibiBias& alibi = options.alibi;
  at::Tensor bias = alibi.bf16 ? (alibi.slopes.unsqueeze(1).to(at::kBFloat16) * at::arange(keys, whole)).to(at::kFloat)
                               : alibi.slopes.unsqueeze(1) * at::arange(keys, whole);
  if (alibi.scaled) bias.mul_(options.scale);
  return bias.unsqueeze(1);
}

at::Tensor bucketed(const RelativePositionBias& bias, int64_t context, int64_t queries, int64_t keys,
                    const at::TensorOptions& whole) {
  const at::Tensor query = at::arange(context, context + queries, whole).unsqueeze(1),
                   key = at::arange(keys, whole).unsqueeze(0);
  const at::Tensor bucket = relative_buckets(key - query, bias.table.size(0), bias.max_distance, bias.bidirectional);
  return at::index_select(bias.table.to(at::kFloat), 0, bucket.flatten())
      .reshape({queries, keys, -1})
      .permute({2, 0, 1});
}

}  // namespace

at::Tensor score_bias(const AttentionOptions& options, int64_t context, int64_t queries, int64_t keys,
                      at::Device device) {
  const at::TensorOptions whole = at::TensorOptions(at::kLong).device(device);
  at::Tensor bias;
  if (options.alibi.slopes.defined()) bias = alibi(options, keys, whole);
  if (options.relative_bias.table.defined()) {
    const at::Tensor more = bucketed(options.relative_bias, context, queries, keys, whole);
    bias = bias.defined() ? bias + more : more;
  }
  return bias;
}

}  // namespace pm::ops
