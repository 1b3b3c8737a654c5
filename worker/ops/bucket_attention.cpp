// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/bucket_attention.h"

#include <ATen/ATen.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "worker/ops/kv_codes.h"

namespace pm::ops {

at::Tensor buckets_before(const at::Tensor& before, int64_t buckets, int64_t max_distance) {
  const int64_t exact = buckets / 2;
  const at::Tensor away = before.clamp_min(0);
  // This is ProphetNet's own order of fp32 operations, so that the edges of buckets are the same; T5's differs.
  const at::Tensor logarithmic = at::log(away.to(at::kFloat) / exact) /
                                     std::log(static_cast<double>(max_distance) / static_cast<double>(exact)) *
                                     (buckets - exact) +
                                 exact;
  return at::where(away < exact, away, logarithmic.clamp(0, buckets - 1).to(at::kLong));
}

namespace {

/// Returns the number of the sequence's rows before its first key. With a cache there is no padding.
int64_t padding_before(const SequenceSpan& span) { return span.blocks.empty() ? span.key_row - span.first : 0; }

/// Returns what the first `padding` rows of values [heads, rows, d] attend to, [heads, padding, d]; `values` are those
/// of keys. Transformers adds the same number to the scores of padding and of keys behind a query.
at::Tensor attended_by_padding(const at::Tensor& rows, const at::Tensor& values, int64_t padding) {
  const at::Tensor counts = at::arange(1, padding + 1, rows.options()) + static_cast<double>(values.size(1));
  const at::Tensor sums = at::cumsum(rows.narrow(1, 0, padding), 1) + values.sum(1, /*keepdim=*/true);
  return sums / counts.unsqueeze(1);
}

}  // namespace

std::vector<SequenceBuckets> sequence_buckets(std::span<const SequenceSpan> sequences,
                                              std::span<const SequenceColumns> columns, int64_t streams,
                                              const BucketShape& shape, at::Device device) {
  if (!columns.empty() && columns.size() != sequences.size())
    throw std::logic_error(std::to_string(columns.size()) + " sequences have columns, there are " +
                           std::to_string(sequences.size()) + " sequences");
  std::vector<SequenceBuckets> all;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceSpan& span = sequences[i];
    const bool padded = !columns.empty() && !columns[i].columns.empty();
    const at::Tensor all_columns =
        padded ? at::tensor(columns[i].columns, at::kLong) : at::arange(span.context + span.tokens, at::kLong);
    const at::Tensor key = all_columns.narrow(0, padding_before(span), span.keys).unsqueeze(0),
                     query = all_columns.narrow(0, span.context, span.tokens).unsqueeze(1);
    SequenceBuckets& own = all.emplace_back();
    own.own = buckets_before(query - key, shape.buckets, shape.max_distance).to(device);
    if (streams > 0) own.next = buckets_before(query + 1 - key, shape.buckets, shape.max_distance).to(device);
    own.hidden.push_back((key > query).to(device));
    for (int64_t stream = 0; stream < streams; ++stream)
      own.hidden.push_back(at::logical_and(key > query - stream, key != 0).to(device));
  }
  return all;
}

at::Tensor gathered_blocks(const at::Tensor& cache, const SequenceSpan& sequence) {
  const int64_t length = sequence.keys, blocks = blocks_for(length);
  const at::Tensor table =
      at::from_blob(const_cast<int32_t*>(sequence.blocks.data()), {blocks}, at::kInt).to(cache.device());
  at::Tensor taken = at::index_select(cache, 0, table);
  taken = holds_codes(cache) ? decoded(taken) : taken.to(at::kFloat);  // [blocks, heads, 16, d]
  taken = taken.permute({1, 0, 2, 3}).reshape({cache.size(1), blocks * block_tokens, head_dim(cache)});
  return taken.narrow(1, 0, length);
}

at::Tensor bucket_attention(const BucketAttention& a, std::span<const SequenceSpan> sequences,
                            BucketProbabilities* probabilities) {
  const int64_t tokens = a.q.size(0) / (1 + a.streams);
  at::Tensor out = at::empty_like(a.q, at::MemoryFormat::Contiguous);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const SequenceSpan& span = sequences[i];
    const SequenceBuckets& of_sequence = a.buckets[i];
    const auto of_heads = [](const at::Tensor& rows, int64_t first, int64_t count) {
      return rows.narrow(0, first, count).permute({1, 0, 2}).to(at::kFloat);
    };
    const at::Tensor keys = a.k_cache ? gathered_blocks(*a.k_cache, span) : of_heads(a.k, span.key_row, span.keys),
                     values = a.v_cache ? gathered_blocks(*a.v_cache, span) : of_heads(a.v, span.key_row, span.keys);
    std::vector<at::Tensor> of_streams;
    for (int64_t stream = 0; stream <= a.streams; ++stream) {
      const int64_t first = stream * tokens + span.first;
      const at::Tensor q = of_heads(a.q, first, span.tokens), bias = of_heads(a.biases, first, span.tokens);
      const at::Tensor& bucket = stream == 0 ? of_sequence.own : of_sequence.next;
      at::Tensor scores = at::bmm(q, keys.transpose(1, 2)).mul_(a.scale);
      scores.add_(at::gather(bias, 2, bucket.unsqueeze(0).expand(scores.sizes())));
      scores.masked_fill_(of_sequence.hidden.at(static_cast<size_t>(stream)), -std::numeric_limits<float>::infinity());
      at::Tensor own_value;
      if (stream > 0) {
        const at::Tensor own = (q * of_heads(a.k, first, span.tokens)).sum(2, /*keepdim=*/true).mul_(a.scale);
        scores = at::cat({scores, own + bias.narrow(2, 0, 1)}, 2);
        own_value = of_heads(a.v, first, span.tokens);
      }
      const at::Tensor weights = at::softmax(scores, -1);
      at::Tensor result = at::bmm(weights.narrow(2, 0, span.keys), values);
      if (const int64_t padding = padding_before(span); stream == 0 && padding > 0) {
        result.narrow(1, 0, padding).copy_(attended_by_padding(of_heads(a.v, first, padding), values, padding));
        if (probabilities) weights.narrow(1, 0, padding).zero_();
      }
      if (stream > 0) result.add_(weights.narrow(2, span.keys, 1) * own_value);
      out.narrow(0, first, span.tokens).copy_(result.permute({1, 0, 2}));
      if (!probabilities) continue;
      if (stream == 0)
        probabilities->own.push_back(weights);
      else
        of_streams.push_back(weights);
    }
    if (probabilities && a.streams > 0) probabilities->streams.push_back(at::stack(of_streams, 1));
  }
  return out;
}

}  // namespace pm::ops
