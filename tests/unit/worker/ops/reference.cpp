// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/worker/ops/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace pm::ops::reference {

int64_t relative_bucket(int64_t distance, int64_t buckets, int64_t max_distance, bool bidirectional) {
  int64_t first = 0, away = std::max<int64_t>(0, -distance);
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    away = std::abs(distance);
  }
  const int64_t exact = buckets / 2;
  if (away < exact) return first + away;
  const double share = std::log(static_cast<double>(away) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  return first +
         std::min(buckets - 1, exact + static_cast<int64_t>(share * static_cast<double>(buckets - exact) + 1e-6));
}

at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t context,
                     const AttentionOptions& options, std::span<const KeyRange> bidirectional) {
  const int64_t queries = q.size(0), heads = q.size(1), d = q.size(2), keys = k.size(0), kv_heads = k.size(1);
  const at::Tensor grouped = q.to(at::kDouble).reshape({queries, kv_heads, heads / kv_heads, d});
  at::Tensor scores =
      at::einsum("qngd,knd->ngqk", {grouped, k.to(at::kDouble)}).reshape({heads, queries, keys}) * options.scale;
  const at::Tensor key = at::arange(keys, at::kLong),
                   query = at::arange(context, context + queries, at::kLong).unsqueeze(1);
  if (options.alibi.slopes.defined()) {
    scores = scores + options.alibi.slopes.to(at::kDouble).reshape({heads, 1, 1}) * key.to(at::kDouble) *
                          (options.alibi.scaled ? options.scale : 1);
  }
  if (const RelativePositionBias& bias = options.relative_bias; bias.table.defined()) {
    const int64_t lowest = -(context + queries - 1);  // distance of key 0 to the last query
    std::vector<int64_t> buckets;
    for (int64_t distance = lowest; distance <= keys - 1 - context; ++distance)
      buckets.push_back(relative_bucket(distance, bias.table.size(0), bias.max_distance, bias.bidirectional));
    const at::Tensor bucket = at::take(at::tensor(buckets), key - query - lowest);  // [queries, keys]
    scores = scores + at::index_select(bias.table.to(at::kDouble), 0, bucket.flatten())
                          .reshape({queries, keys, heads})
                          .permute({2, 0, 1});
  }
  if (options.softcap > 0) scores = options.softcap * at::tanh(scores / options.softcap);
  at::Tensor hidden = at::zeros({queries, keys}, at::kBool);
  at::Tensor later = key > query;
  for (const KeyRange& range : bidirectional)
    later = later.logical_and((query < range.begin)
                                  .logical_or(query >= range.end)
                                  .logical_or(key < range.begin)
                                  .logical_or(key >= range.end));
  if (options.causal) hidden = hidden.logical_or(later);
  if (options.window > 0) hidden = hidden.logical_or(key <= query - options.window);
  if (options.window > 0 && !options.causal) hidden = hidden.logical_or(key >= query + options.window);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  if (options.sinks.defined())
    scores = at::cat({scores, options.sinks.to(at::kDouble).view({heads, 1, 1}).expand({heads, queries, 1})}, -1);
  const at::Tensor weights =
      at::softmax(scores, -1).narrow(-1, 0, keys).reshape({kv_heads, heads / kv_heads, queries, keys});
  return at::einsum("ngqk,knd->qngd", {weights, v.to(at::kDouble)}).reshape({queries, heads, d});
}

at::Tensor rotate(const at::Tensor& x, const at::Tensor& positions, const at::Tensor& frequencies, bool is_neox,
                  double factor) {
  const int64_t n = frequencies.size(0);
  const at::Tensor angle = (positions.to(at::kFloat).unsqueeze(1) * frequencies).to(at::kDouble).unsqueeze(1);
  const at::Tensor pair = at::arange(n, at::kLong), first = is_neox ? pair : 2 * pair,
                   second = is_neox ? pair + n : 2 * pair + 1;
  at::Tensor rotated = x.to(at::kDouble).clone();
  const at::Tensor a = at::index_select(rotated, 2, first), b = at::index_select(rotated, 2, second);
  rotated.index_copy_(2, first, (a * at::cos(angle) - b * at::sin(angle)) * factor);
  rotated.index_copy_(2, second, (b * at::cos(angle) + a * at::sin(angle)) * factor);
  return rotated;
}

AttentionInputs attention_inputs(int64_t heads, int64_t kv_heads, int64_t d, std::span<const SequenceShape> shapes,
                                 at::ScalarType type) {
  constexpr int64_t unused = 3;
  AttentionInputs inputs;
  inputs.blocks = unused;
  const auto length = [](const SequenceShape& s) { return s.keys > 0 ? s.keys : s.context + s.tokens; };
  for (const SequenceShape& shape : shapes) inputs.blocks += blocks_for(length(shape));
  std::vector<int32_t> order(static_cast<size_t>(inputs.blocks));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  std::vector<at::Tensor> q, k, v;
  std::vector<int64_t> slots;
  auto next = order.cbegin();
  int64_t row = 0, key_row = 0;
  for (const SequenceShape& shape : shapes) {
    const int64_t keys = length(shape), blocks = blocks_for(keys);
    k.push_back(at::randn({keys, kv_heads, d}).to(type).to(at::kFloat));
    v.push_back(at::randn({keys, kv_heads, d}).to(type).to(at::kFloat));
    q.push_back(rounded_for(type, at::randn({shape.tokens, heads, d})));
    const std::vector<int32_t>& table = inputs.tables.emplace_back(next, next + blocks);
    next += blocks;
    for (int64_t key = 0; key < keys; ++key)
      slots.push_back(table[static_cast<size_t>(key / block_tokens)] * block_tokens + key % block_tokens);
    inputs.sequences.spans.push_back({.first = row,
                                      .tokens = shape.tokens,
                                      .context = shape.context,
                                      .keys = keys,
                                      .key_row = key_row,
                                      .blocks = {},
                                      .bidirectional = shape.bidirectional});
    row += shape.tokens;
    key_row += keys;
  }
  for (size_t i = 0; i < shapes.size(); ++i) inputs.sequences.spans[i].blocks = inputs.tables[i];
  inputs.q = at::cat(q);
  inputs.k = at::cat(k);
  inputs.v = at::cat(v);
  inputs.slots = at::tensor(slots);
  return inputs;
}

at::Tensor attention(const AttentionInputs& inputs, const AttentionOptions& options) {
  std::vector<at::Tensor> results;
  for (const SequenceSpan& span : inputs.sequences.spans) {
    results.push_back(
        attention(inputs.q.narrow(0, span.first, span.tokens), inputs.k.narrow(0, span.key_row, span.keys),
                  inputs.v.narrow(0, span.key_row, span.keys), span.context, options, span.bidirectional));
  }
  return at::cat(results);
}

}  // namespace pm::ops::reference
