// SPDX-License-Identifier: Apache-2.0
// Attention by buckets of distances, and of streams, compared with the formula for each pair of tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/ops/bucket_attention.h"

namespace pm::ops {
namespace {

constexpr BucketShape shape{.buckets = 6, .max_distance = 11};
constexpr double scale = 0.3;

/// The bucket of a key that stands `before` a query, by the formula in fp64.
int64_t bucket(int64_t before) {
  const int64_t exact = shape.buckets / 2;
  before = std::max<int64_t>(before, 0);
  if (before < exact) return before;
  const double ratio = std::log(static_cast<double>(before) / static_cast<double>(exact)) /
                       std::log(static_cast<double>(shape.max_distance) / static_cast<double>(exact));
  return std::min(shape.buckets - 1, static_cast<int64_t>(static_cast<double>(exact) +
                                                          ratio * static_cast<double>(shape.buckets - exact)));
}

struct Inputs {
  at::Tensor q, k, v, biases;
  std::vector<SequenceSpan> spans;
  std::vector<SequenceColumns> columns;
  int64_t streams = 0;
};

Inputs inputs(const std::vector<std::vector<int64_t>>& columns, int64_t streams) {
  at::manual_seed(5);
  Inputs in{.q = {}, .k = {}, .v = {}, .biases = {}, .spans = {}, .columns = {}, .streams = streams};
  int64_t tokens = 0;
  for (const std::vector<int64_t>& own : columns) {
    const auto count = static_cast<int64_t>(own.size());
    in.spans.push_back(
        {.first = tokens, .tokens = count, .context = 0, .keys = count, .key_row = tokens, .blocks = {}});
    in.columns.push_back({.length = own.back() + 1, .columns = own, .global_tokens = {}});
    tokens += count;
  }
  const int64_t rows = (1 + streams) * tokens;
  for (at::Tensor* one : {&in.q, &in.k, &in.v}) *one = at::randn({rows, 2, 4});
  in.biases = at::randn({rows, 2, shape.buckets});
  return in;
}

double score(const Inputs& in, int64_t query, int64_t key, int64_t head, int64_t before) {
  const at::Tensor product = (in.q[query][head] * in.k[key][head]).sum();
  return product.item<double>() * scale + in.biases[query][head][bucket(before)].item<double>();
}

/// The result for one query, pair by pair.
at::Tensor expected(const Inputs& in, size_t sequence, int64_t stream, int64_t token, int64_t head) {
  const SequenceSpan& span = in.spans[sequence];
  const std::vector<int64_t>& columns = in.columns[sequence].columns;
  const int64_t tokens = in.q.size(0) / (1 + in.streams), query = stream * tokens + span.first + token,
                column = columns[static_cast<size_t>(token)];
  std::vector<double> scores;
  std::vector<at::Tensor> values;
  for (int64_t key = 0; key < span.tokens; ++key) {
    const int64_t place = columns[static_cast<size_t>(key)];
    const bool seen = stream == 0 ? place <= column : place <= column - (stream - 1) || place == 0;
    if (!seen) continue;
    scores.push_back(score(in, query, span.first + key, head, column - place + (stream > 0 ? 1 : 0)));
    values.push_back(in.v[span.first + key][head]);
  }
  if (stream > 0) {
    scores.push_back(score(in, query, query, head, 0));
    values.push_back(in.v[query][head]);
  }
  const at::Tensor weights = at::softmax(at::tensor(scores, at::kDouble), 0);
  return at::mv(at::stack(values).to(at::kDouble).t(), weights);
}

at::Tensor attended(const Inputs& in, BucketProbabilities* probabilities = nullptr) {
  const auto made = sequence_buckets(in.spans, in.columns, in.streams, shape, at::kCPU);
  return bucket_attention(
      {.scale = scale, .streams = in.streams, .q = in.q, .k = in.k, .v = in.v, .biases = in.biases, .buckets = made},
      in.spans, probabilities);
}

TEST(BucketAttention, EqualsTheFormulaInEachStream) {
  for (const int64_t streams : {0, 1, 3}) {
    // tokens without padding, behind padding, and with padding between them
    const Inputs in = inputs({{0, 1, 2, 3, 4, 5, 6}, {4, 5, 6}, {1, 4, 9, 30}}, streams);
    const at::Tensor out = attended(in);
    const int64_t tokens = in.q.size(0) / (1 + streams);
    for (size_t i = 0; i < in.spans.size(); ++i)
      for (int64_t stream = 0; stream <= streams; ++stream)
        for (int64_t token = 0; token < in.spans[i].tokens; ++token)
          for (int64_t head = 0; head < 2; ++head)
            EXPECT_TRUE(at::allclose(out[stream * tokens + in.spans[i].first + token][head].to(at::kDouble),
                                     expected(in, i, stream, token, head), 1e-5, 1e-5))
                << i << " " << stream << " " << token << " " << head;
  }
}

TEST(BucketAttention, ShowsWhatEachStreamSaw) {
  const Inputs in = inputs({{0, 1, 2, 3, 4}}, 2);
  BucketProbabilities seen;
  attended(in, &seen);
  EXPECT_EQ(seen.own.at(0).sizes(), (std::vector<int64_t>{2, 5, 5}));
  EXPECT_EQ(seen.streams.at(0).sizes(), (std::vector<int64_t>{2, 2, 5, 6}));
  EXPECT_TRUE(at::allclose(seen.streams[0].sum(3), at::ones({2, 2, 5})));
  EXPECT_EQ(seen.streams[0][0][1][3][3].item<float>(), 0) << "the second stream does not see its own column";
  EXPECT_GT(seen.streams[0][0][1][0][0].item<float>(), 0) << "but the first one";
}

/// A cache with the keys of a sequence in two blocks, the second of which lies first.
struct Cache {
  at::Tensor k = at::zeros({2, 2, 16, 4}), v = at::zeros({2, 2, 16, 4});
  std::vector<int32_t> blocks{1, 0};
};

TEST(BucketAttention, ReadsTheCacheAsItReadsRows) {
  const int64_t count = 19;
  std::vector<int64_t> columns(count);
  for (int64_t i = 0; i < count; ++i) columns[static_cast<size_t>(i)] = i;
  const Inputs in = inputs({columns}, 1);
  const at::Tensor whole = attended(in);
  Cache cache;
  at::Tensor slots = at::empty({count}, at::kLong);
  for (int64_t i = 0; i < count; ++i) slots[i] = cache.blocks[static_cast<size_t>(i / 16)] * 16 + i % 16;
  write_kv(in.k.narrow(0, 0, count), in.v.narrow(0, 0, count), slots, cache.k, cache.v);
  // the last three tokens, of both streams
  const int64_t rest = 3, before = count - rest;
  const SequenceSpan span{
      .first = 0, .tokens = rest, .context = before, .keys = count, .key_row = 0, .blocks = cache.blocks};
  const auto last = [&](const at::Tensor& all) {
    return at::cat({all.narrow(0, before, rest), all.narrow(0, count + before, rest)});
  };
  const auto made = sequence_buckets({&span, 1}, {}, 1, shape, at::kCPU);
  const at::Tensor out = bucket_attention({.scale = scale,
                                           .streams = 1,
                                           .q = last(in.q),
                                           .k = last(in.k),
                                           .v = last(in.v),
                                           .biases = last(in.biases),
                                           .k_cache = &cache.k,
                                           .v_cache = &cache.v,
                                           .buckets = made},
                                          {&span, 1});
  EXPECT_TRUE(at::allclose(out, last(whole), 1e-5, 1e-5));
}

TEST(BucketAttention, LetsPaddingBeforeTheKeysAttendToThemAndItselfWithEqualWeights) {
  Inputs in = inputs({{0, 1, 2, 3, 4}}, 1);
  in.columns.clear();
  in.spans[0].key_row = 2;  // two rows of padding
  in.spans[0].keys = 3;
  const at::Tensor out = attended(in);
  EXPECT_FALSE(out.isnan().any().item<bool>());
  EXPECT_TRUE(at::allclose(out[0], (in.v[0] + in.v[2] + in.v[3] + in.v[4]) / 4));
  EXPECT_TRUE(at::allclose(out[1], in.v.narrow(0, 0, 5).mean(0)));
  EXPECT_TRUE(at::allclose(out[2], in.v[2], 1e-5, 1e-5)) << "the first token sees itself alone";
  EXPECT_TRUE(at::allclose(out[5], in.v[5], 1e-5, 1e-5)) << "padding of a stream sees its own key alone";
}

TEST(BucketAttention, RefusesColumnsOfOtherSequences) {
  const Inputs in = inputs({{0, 1}, {0, 1}}, 0);
  EXPECT_THROW(sequence_buckets(in.spans, std::span(in.columns).first(1), 0, shape, at::kCPU), std::logic_error);
}

}  // namespace
}  // namespace pm::ops
