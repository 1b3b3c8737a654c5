// SPDX-License-Identifier: Apache-2.0
// Terms of scores by the content of relative positions, compared with the formula for each pair of tokens.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "worker/ops/backend.h"

namespace pm::ops {
namespace {

struct Inputs {
  at::Tensor q, k, v;
  StepSequences sequences;
  RelativeIndex index;
  AttentionOptions options;
};

/// Sequences whose tokens stand in `columns`; rows of distances are shared beyond `exact`, as buckets are.
Inputs inputs(int64_t heads, int64_t d, const std::vector<std::vector<int64_t>>& columns, int64_t exact, bool keys,
              bool queries) {
  at::manual_seed(11);
  Inputs in;
  int64_t tokens = 0;
  for (const std::vector<int64_t>& own : columns) {
    const auto count = static_cast<int64_t>(own.size());
    in.sequences.spans.push_back(
        {.first = tokens, .tokens = count, .context = 0, .keys = count, .key_row = tokens, .blocks = {}});
    in.index.columns.push_back(at::tensor(own, at::kLong));
    in.index.reach = std::max(in.index.reach, own.back() - own.front());
    tokens += count;
  }
  const int64_t reach = in.index.reach;
  at::Tensor rows = at::arange(-reach, reach + 1, at::kLong).clamp(-exact, exact);
  in.index.rows = rows - rows[0];
  const int64_t count = in.index.rows[-1].item<int64_t>() + 1;
  for (at::Tensor* one : {&in.q, &in.k, &in.v}) *one = at::randn({tokens, heads, d});
  in.options = {.scale = 0.3, .causal = false};
  if (keys) in.options.relative_content.keys = at::randn({count, heads, d});
  if (queries) in.options.relative_content.queries = at::randn({count, heads, d});
  return in;
}

/// Adds biases of queries, and segments of tokens in turn.
void add_segments_and_biases(Inputs& in, int64_t heads, int64_t d) {
  RelativeContent& content = in.options.relative_content;
  for (at::Tensor* bias : {&content.key_bias, &content.content_bias, &content.segment_bias})
    *bias = at::randn({1, heads, d});
  content.segments = at::randn({2, heads, d});
  for (const SequenceSpan& span : in.sequences.spans)
    in.index.segments.push_back(at::arange(span.tokens, at::kLong).remainder(3));
}

at::Tensor with(const at::Tensor& query, const at::Tensor& bias) { return bias.defined() ? query + bias[0] : query; }

/// The formula, pair by pair, in fp64.
at::Tensor expected(const Inputs& in) {
  const RelativeContent& content = in.options.relative_content;
  at::Tensor out = at::zeros(in.q.sizes(), at::kDouble);
  for (size_t i = 0; i < in.sequences.spans.size(); ++i) {
    const SequenceSpan& span = in.sequences.spans[i];
    const auto of = [&](const at::Tensor& x, int64_t token) { return x[span.first + token].to(at::kDouble); };
    for (int64_t query = 0; query < span.tokens; ++query) {
      std::vector<at::Tensor> scores;
      for (int64_t key = 0; key < span.tokens; ++key) {
        const int64_t distance = (in.index.columns[i][query] - in.index.columns[i][key]).item<int64_t>(),
                      row = in.index.rows[in.index.reach + distance].item<int64_t>();
        at::Tensor score = (with(of(in.q, query), content.content_bias) * of(in.k, key)).sum(1);
        if (content.keys.defined())
          score = score + (with(of(in.q, query), content.key_bias) * content.keys[row]).sum(1);
        if (content.segments.defined()) {
          const bool other = !at::equal(in.index.segments[i][query], in.index.segments[i][key]);
          score = score + (with(of(in.q, query), content.segment_bias) * content.segments[other ? 1 : 0]).sum(1);
        }
        if (content.queries.defined()) score = score + (of(in.k, key) * content.queries[row]).sum(1);
        scores.push_back(score * in.options.scale);
      }
      const at::Tensor weights = at::softmax(at::stack(scores), 0);  // [keys, heads]
      for (int64_t key = 0; key < span.tokens; ++key)
        out[span.first + query] += weights[key].unsqueeze(1) * of(in.v, key);
    }
  }
  return out;
}

double difference(const at::Tensor& got, const at::Tensor& wanted) {
  return (got.to(at::kDouble) - wanted).abs().max().item<double>();
}

std::vector<int64_t> from_to(int64_t begin, int64_t end) {
  std::vector<int64_t> all;
  for (int64_t column = begin; column < end; ++column) all.push_back(column);
  return all;
}

TEST(RelativeContent, EqualsTheFormulaOfEachPair) {
  const std::vector<std::vector<int64_t>> columns{from_to(0, 35), {4}, from_to(7, 24), {1, 2, 5, 40}};
  for (const auto& [keys, queries] : {std::pair{true, true}, {true, false}, {false, true}}) {
    Inputs in = inputs(5, 6, columns, /*exact=*/9, keys, queries);
    in.options.relative_content.index = &in.index;
    const at::Tensor wanted = expected(in);
    std::vector<at::Tensor> seen;
    EXPECT_LT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options, &seen), wanted), 2e-6);
    EXPECT_EQ(seen.size(), columns.size());
    EXPECT_LT(difference(Backend().ragged_attention(in.q, in.k, in.v, in.sequences, in.options, nullptr), wanted), 2e-6)
        << "the reference by gathers";
  }
}

TEST(RelativeContent, HasBiasesOfItsOwnAndSegments) {
  const std::vector<std::vector<int64_t>> columns{from_to(0, 19), {4}, {1, 2, 5, 40}};
  for (const bool keys : {true, false}) {
    Inputs in = inputs(5, 6, columns, /*exact=*/9, keys, !keys);
    in.options.relative_content.index = &in.index;
    add_segments_and_biases(in, 5, 6);
    const at::Tensor wanted = expected(in);
    EXPECT_LT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options), wanted), 2e-6);
    EXPECT_LT(difference(Backend().ragged_attention(in.q, in.k, in.v, in.sequences, in.options, nullptr), wanted), 2e-6)
        << "the reference by gathers";
  }
}

TEST(RelativeContent, ReadsWhatLiesInOtherOrders) {
  Inputs in = inputs(4, 8, {from_to(0, 18)}, /*exact=*/40, true, true);
  in.options.relative_content.index = &in.index;
  const at::Tensor wanted = expected(in);
  for (at::Tensor* one : {&in.q, &in.k, &in.v, &in.options.relative_content.keys, &in.options.relative_content.queries})
    *one = one->permute({1, 2, 0}).contiguous().permute({2, 0, 1});
  EXPECT_LT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options), wanted), 2e-6);
}

}  // namespace
}  // namespace pm::ops
