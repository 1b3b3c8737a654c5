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
    const at::Tensor here = at::tensor(own, at::kLong);
    in.index.sequences.push_back({.columns = here, .key_columns = here, .segments = {}, .key_segments = {}});
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
  for (RelativeSequence& own : in.index.sequences) {
    own.segments = at::arange(own.columns.numel(), at::kLong).remainder(3);
    own.key_segments = at::arange(own.key_columns.numel(), at::kLong).remainder(3);
  }
}

at::Tensor with(const at::Tensor& query, const at::Tensor& bias) { return bias.defined() ? query + bias[0] : query; }

/// The score of a query and a key of sequence `i`, [heads] in fp64.
at::Tensor score(const Inputs& in, size_t i, int64_t query, int64_t key) {
  const RelativeContent& content = in.options.relative_content;
  const SequenceSpan& span = in.sequences.spans[i];
  const RelativeSequence& own = in.index.sequences[i];
  const at::Tensor q = in.q[span.first + query].to(at::kDouble), k = in.k[span.key_row + key].to(at::kDouble);
  at::Tensor sum = (with(q, content.content_bias) * k).sum(1);
  if (query < own.queries_apart || key < own.keys_apart) return sum;
  const int64_t distance = (own.columns[query] - own.key_columns[key]).item<int64_t>(),
                row = in.index.rows[in.index.reach + distance].item<int64_t>();
  if (content.keys.defined()) sum = sum + (with(q, content.key_bias) * content.keys[row]).sum(1);
  if (content.queries.defined()) sum = sum + (k * content.queries[row]).sum(1);
  if (!content.segments.defined()) return sum;
  const auto a = own.segments[query].item<int64_t>(), b = own.key_segments[key].item<int64_t>();
  const bool same = a == b || content.common_segment == a || content.common_segment == b;
  return sum + (with(q, content.segment_bias) * content.segments[same ? 0 : 1]).sum(1);
}

/// The formula, pair by pair, in fp64.
at::Tensor expected(const Inputs& in) {
  at::Tensor out = at::zeros(in.q.sizes(), at::kDouble);
  for (size_t i = 0; i < in.sequences.spans.size(); ++i) {
    const SequenceSpan& span = in.sequences.spans[i];
    for (int64_t query = 0; query < span.tokens; ++query) {
      std::vector<at::Tensor> scores;
      const at::Tensor& hidden = in.index.sequences[i].hidden;
      const bool blind = hidden.defined() && hidden[query].all().item<bool>();
      for (int64_t key = 0; key < span.keys; ++key) {
        at::Tensor& one = scores.emplace_back(score(in, i, query, key) * in.options.scale);
        if (blind)
          one = at::zeros_like(one);
        else if (hidden.defined() && hidden[query][key].item<bool>())
          one.fill_(-1e300);
      }
      const at::Tensor weights = at::softmax(at::stack(scores), 0);  // [keys, heads]
      for (int64_t key = 0; key < span.keys; ++key)
        out[span.first + query] += weights[key].unsqueeze(1) * in.v[span.key_row + key].to(at::kDouble);
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

/// Three targets behind the tokens, in any order: they are no keys, and some see few tokens or none.
TEST(RelativeContent, TargetsSeeWhatIsNotHiddenFromThem) {
  Inputs in = inputs(5, 6, {from_to(0, 12), from_to(3, 23)}, /*exact=*/9, true, true);
  in.options.relative_content.index = &in.index;
  add_segments_and_biases(in, 5, 6);
  for (size_t i = 0; i < 2; ++i) {
    RelativeSequence& own = in.index.sequences[i];
    const int64_t queries = own.columns.numel(), keys = in.sequences.spans[i].keys = queries - 3;
    own.columns = own.columns.clone();
    own.columns.slice(0, keys).copy_(own.columns.index_select(0, at::tensor({int64_t{7}, int64_t{0}, int64_t{4}})));
    own.key_columns = own.columns.narrow(0, 0, keys);
    own.key_segments = own.key_segments.narrow(0, 0, keys);
    own.hidden = at::rand({queries, keys}) < 0.5;
    own.hidden[1].fill_(true);
    own.hidden[keys].fill_(true);
  }
  EXPECT_LT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options), expected(in)), 2e-6);
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

/// Makes the queries of sequences others than their keys: every second token with the first before them, or all tokens
/// where the last ones are padding.
void set_queries(Inputs& in, bool pooled) {
  int64_t first = 0;
  for (size_t i = 0; i < in.sequences.spans.size(); ++i) {
    SequenceSpan& span = in.sequences.spans[i];
    RelativeSequence& own = in.index.sequences[i];
    if (pooled) {
      own.columns = at::cat({own.key_columns.narrow(0, 0, 1) - 1, own.key_columns.slice(0, 1, std::nullopt, 2)});
      span.first = first;
      span.tokens = own.columns.numel();
      first += span.tokens;
    } else {
      span.keys = (span.keys + 1) / 2;
      own.key_columns = own.key_columns.narrow(0, 0, span.keys);
    }
    own.queries_apart = own.keys_apart = 1;
  }
  if (pooled) in.q = in.q.narrow(0, 0, first);
  in.index.reach += 1;
  const at::Tensor rows = in.index.rows + 1;
  in.index.rows = at::cat({rows.narrow(0, 0, 1) - 1, rows, rows.narrow(0, -1, 1)});
}

TEST(RelativeContent, HasFewerQueriesOrKeysOfWhichTheFirstMayStandApart) {
  for (const bool pooled : {true, false}) {
    Inputs in = inputs(5, 6, {from_to(0, 19), {4}, from_to(0, 34)}, /*exact=*/50, true, true);
    in.options.relative_content.index = &in.index;
    for (at::Tensor* table : {&in.options.relative_content.keys, &in.options.relative_content.queries})
      *table = at::cat({at::randn({1, 5, 6}), *table});
    set_queries(in, pooled);
    add_segments_and_biases(in, 5, 6);
    in.options.relative_content.common_segment = 2;
    const at::Tensor wanted = expected(in);
    EXPECT_LT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options), wanted), 2e-6) << pooled;
    EXPECT_LT(difference(Backend().ragged_attention(in.q, in.k, in.v, in.sequences, in.options, nullptr), wanted), 2e-6)
        << "the reference by gathers";
    in.options.relative_content.common_segment = std::nullopt;
    EXPECT_GT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options), wanted), 1e-3);
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

/// The keys and values of the sequences in a cache of blocks that lie in another order, and the queries of the last
/// tokens of each.
struct Paged {
  Inputs in;
  at::Tensor q, k_cache, v_cache;
  std::vector<std::vector<int32_t>> tables;
  StepSequences sequences;
};

Paged paged(Inputs in, const std::vector<int64_t>& queries) {
  Paged out{.in = std::move(in), .q = {}, .k_cache = {}, .v_cache = {}, .tables = {}, .sequences = {}};
  const int64_t heads = out.in.k.size(1), d = out.in.k.size(2);
  out.k_cache = at::randn({20, heads, block_tokens, d});
  out.v_cache = at::randn({20, heads, block_tokens, d});
  std::vector<at::Tensor> rows;
  int64_t first = 0;
  int32_t next = 19;
  for (size_t i = 0; i < queries.size(); ++i) {
    const SequenceSpan& all = out.in.sequences.spans[i];
    std::vector<int64_t> slots;
    std::vector<int32_t>& table = out.tables.emplace_back();
    for (int64_t token = 0; token < all.tokens; ++token) {
      if (token % block_tokens == 0) table.push_back(next--);
      slots.push_back(table.back() * block_tokens + token % block_tokens);
    }
    write_kv(out.in.k.narrow(0, all.first, all.tokens), out.in.v.narrow(0, all.first, all.tokens), at::tensor(slots),
             out.k_cache, out.v_cache);
    rows.push_back(out.in.q.narrow(0, all.first + all.tokens - queries[i], queries[i]));
    out.sequences.spans.push_back({.first = first,
                                   .tokens = queries[i],
                                   .context = all.tokens - queries[i],
                                   .keys = all.tokens,
                                   .key_row = 0,
                                   .blocks = {}});
    first += queries[i];
  }
  for (size_t i = 0; i < queries.size(); ++i) out.sequences.spans[i].blocks = out.tables[i];
  out.q = at::cat(rows);
  return out;
}

TEST(RelativeContent, OfACacheEqualsThatOfTheWholeSequences) {
  const std::vector<std::vector<int64_t>> columns{from_to(0, 35), {0}, from_to(0, 17), from_to(0, 16)};
  for (const bool causal : {true, false}) {
    Inputs in = inputs(5, 6, columns, /*exact=*/9, true, true);
    in.options.causal = causal;
    in.options.relative_content.index = &in.index;
    add_segments_and_biases(in, 5, 6);
    in.options.relative_content.segments = at::Tensor();
    const at::Tensor whole = ragged_attention(in.q, in.k, in.v, in.sequences, in.options);
    const std::vector<int64_t> queries{1, 1, 9, 16};
    Paged step = paged(in, queries);
    RelativeIndex index = in.index;  // the last tokens are the queries
    std::vector<at::Tensor> wanted;
    for (size_t i = 0; i < queries.size(); ++i) {
      RelativeSequence& own = index.sequences[i];
      own.columns = own.columns.slice(0, own.columns.numel() - queries[i]);
      const SequenceSpan& all = in.sequences.spans[i];
      wanted.push_back(whole.narrow(0, all.first + all.tokens - queries[i], queries[i]));
    }
    AttentionOptions options = in.options;
    options.relative_content.index = &index;
    EXPECT_LT(difference(paged_attention(step.q, step.k_cache, step.v_cache, step.sequences, options),
                         at::cat(wanted).to(at::kDouble)),
              2e-6);
    EXPECT_LT(difference(Backend().paged_attention(step.q, step.k_cache, step.v_cache, step.sequences, options),
                         at::cat(wanted).to(at::kDouble)),
              2e-6)
        << "the reference by gathers";
  }
}

TEST(RelativeContent, MayBeOneVectorForAllHeads) {
  Inputs in = inputs(5, 6, {from_to(0, 35), {4}, {1, 2, 5, 40}}, /*exact=*/9, true, true);
  in.options.relative_content.index = &in.index;
  RelativeContent& content = in.options.relative_content;
  content.keys = content.queries = content.keys.narrow(1, 0, 1).expand({-1, 5, -1});
  const at::Tensor wanted = expected(in);
  EXPECT_LT(difference(ragged_attention(in.q, in.k, in.v, in.sequences, in.options), wanted), 2e-6);
  EXPECT_LT(difference(Backend().ragged_attention(in.q, in.k, in.v, in.sequences, in.options, nullptr), wanted), 2e-6);
}

}  // namespace
}  // namespace pm::ops
