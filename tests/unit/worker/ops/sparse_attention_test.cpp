// SPDX-License-Identifier: Apache-2.0
// Sparse attention compared with the plain formula over all keys, in double, with the weight that each key has.
#include "worker/ops/sparse_attention.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace pm::ops {
namespace {

constexpr int64_t heads = 3, d = 8;

struct Inputs {
  at::Tensor q, k, v;
  GlobalRows global;
  std::vector<SequenceSpan> spans;
  std::vector<SequenceColumns> columns;
};

Inputs inputs(std::vector<SequenceColumns> columns, const std::vector<int64_t>& tokens) {
  at::manual_seed(11);
  Inputs made;
  int64_t rows = 0, globals = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    made.spans.push_back(
        {.first = rows, .tokens = tokens[i], .context = 0, .keys = tokens[i], .key_row = rows, .blocks = {}});
    rows += tokens[i];
    globals += static_cast<int64_t>(columns[i].global_tokens.size());
  }
  for (at::Tensor* one : {&made.q, &made.k, &made.v, &made.global.k, &made.global.v})
    *one = at::randn({rows, heads, d});
  made.global.q = at::randn({globals, heads, d});
  made.columns = std::move(columns);
  return made;
}

/// How often a query in one column counts the key in another; 0: it does not see it.
using Count = std::function<int64_t(int64_t query, int64_t key)>;

/// The softmax over all keys with counts, [heads, queries, keys] in double, of one key when it counts several times.
at::Tensor weights(const at::Tensor& q, const at::Tensor& k, double scale, const at::Tensor& counts) {
  const at::Tensor scores = at::bmm(q.permute({1, 0, 2}), k.permute({1, 2, 0})).to(at::kDouble) * scale;
  const at::Tensor powers = scores.exp(), total = (powers * counts).sum(-1, true);
  return at::where(counts > 0, powers / total, at::zeros_like(powers));
}

at::Tensor attended(const at::Tensor& weight, const at::Tensor& v) {
  return at::bmm(weight, v.permute({1, 0, 2}).to(at::kDouble)).permute({1, 0, 2});
}

/// Compares the operation with the formula. `counts` gives each sequence's.
void expect_equal(const Inputs& in, const SparseOptions& options, const std::vector<Count>& counts) {
  std::vector<SparseProbabilities> seen;
  const at::Tensor out = sparse_attention(in.q, in.k, in.v, in.global, in.spans, in.columns, options, &seen);
  const at::Tensor plain = sparse_attention(in.q, in.k, in.v, in.global, in.spans, in.columns, options);
  ASSERT_TRUE(out.equal(plain));
  const bool window = std::holds_alternative<SlidingWindow>(options.pattern);
  int64_t globals = 0;
  for (size_t i = 0; i < in.spans.size(); ++i) {
    SCOPED_TRACE(i);
    const SequenceSpan& span = in.spans[i];
    const SequenceColumns& where = in.columns[i];
    const auto column = [&](int64_t token) {
      return where.columns.empty() ? token : where.columns[static_cast<size_t>(token)];
    };
    at::Tensor table = at::zeros({span.tokens, span.tokens}, at::kDouble);
    for (int64_t query = 0; query < span.tokens; ++query)
      for (int64_t key = 0; key < span.tokens; ++key)
        table[query][key] = static_cast<double>(counts[i](column(query), column(key)));
    for (const int64_t token : where.global_tokens) table.select(1, token).fill_(1);
    const auto own = [&](const at::Tensor& rows) { return rows.narrow(0, span.first, span.tokens); };
    const at::Tensor weight = weights(own(in.q), own(in.k), options.scale, table);
    at::Tensor expected = attended(weight * table, own(in.v));
    const auto count = static_cast<int64_t>(where.global_tokens.size());
    if (count > 0) {
      const at::Tensor all = at::ones({count, span.tokens}, at::kDouble);
      const at::Tensor of_globals =
          weights(in.global.q.narrow(0, globals, count), own(in.global.k), options.scale, all);
      const at::Tensor answers = attended(of_globals, own(in.global.v));
      for (int64_t j = 0; j < count; ++j) expected[where.global_tokens[static_cast<size_t>(j)]].copy_(answers[j]);
      EXPECT_LT((seen[i].global.transpose(1, 2) - of_globals).abs().max().item<double>(), 1e-6);
      globals += count;
    }
    EXPECT_LT((own(out) - expected).abs().max().item<double>(), 2e-6);
    if (!window) {
      EXPECT_LT((seen[i].seen - weight).abs().max().item<double>(), 1e-6);
      continue;
    }
    const int64_t side = std::get<SlidingWindow>(options.pattern).each_side;
    ASSERT_EQ(seen[i].seen.sizes(), at::IntArrayRef({heads, span.tokens, count + 2 * side + 1}));
    at::Tensor wanted = at::zeros_like(seen[i].seen);
    const auto is_global = [&](int64_t token) {
      return std::find(where.global_tokens.begin(), where.global_tokens.end(), token) != where.global_tokens.end();
    };
    for (int64_t query = 0; query < span.tokens; ++query) {
      if (is_global(query)) continue;
      for (int64_t j = 0; j < count; ++j)
        wanted.select(1, query).select(1, j).copy_(
            weight.select(1, query).select(1, where.global_tokens[static_cast<size_t>(j)]));
      for (int64_t key = 0; key < span.tokens; ++key) {
        const int64_t ahead = column(key) - column(query);
        if (!is_global(key) && std::abs(ahead) <= side)
          wanted.select(1, query).select(1, count + side + ahead).copy_(weight.select(1, query).select(1, key));
      }
    }
    EXPECT_LT((seen[i].seen - wanted).abs().max().item<double>(), 1e-6);
  }
}

std::vector<int64_t> after(int64_t first, int64_t count) {
  std::vector<int64_t> columns;
  for (int64_t i = 0; i < count; ++i) columns.push_back(first + i);
  return columns;
}

TEST(SparseAttention, AWindowShowsTheNeighborsOnBothSides) {
  for (const int64_t side : {1, 5, 32, 40, 200}) {
    SCOPED_TRACE(side);
    const Count near = [side](int64_t query, int64_t key) { return std::abs(query - key) <= side ? 1 : 0; };
    expect_equal(inputs({{150, {}, {}}, {150, {}, {}}, {150, {}, {}}}, {150, 1, 33}),
                 {.scale = 0.3, .pattern = SlidingWindow{side}}, {near, near, near});
  }
}

TEST(SparseAttention, GlobalTokensSeeAndAreSeenWhereverTheyStand) {
  const Count near = [](int64_t query, int64_t key) { return std::abs(query - key) <= 4 ? 1 : 0; };
  expect_equal(inputs({{100, {}, {0, 1, 50, 99}}, {100, {}, {}}, {100, {}, {2}}, {100, {}, {0}}}, {100, 40, 3, 1}),
               {.scale = 0.3, .pattern = SlidingWindow{4}}, {near, near, near, near});
}

TEST(SparseAttention, DistancesAreThoseOfThePaddedForm) {
  const Count near = [](int64_t query, int64_t key) { return std::abs(query - key) <= 3 ? 1 : 0; };
  std::vector<int64_t> holes;
  for (int64_t i = 0; i < 40; ++i) holes.push_back(2 * i);
  expect_equal(inputs({{80, after(70, 10), {3}}, {80, holes, {0, 7}}, {80, {}, {}}}, {10, 40, 80}),
               {.scale = 0.3, .pattern = SlidingWindow{3}}, {near, near, near});
}

/// The counts of block-sparse attention in a padded form of `length` columns.
Count blocks(const BlockSparse& pattern, int64_t length) {
  return [=](int64_t query, int64_t key) -> int64_t {
    const int64_t last = (length + pattern.block - 1) / pattern.block - 1, from = query / pattern.block,
                  to = key / pattern.block;
    if (length <= pattern.dense_length() || from == 0 || from == last) return 1;
    if (to == 0) return 1 + pattern.random;
    return to == last || std::abs(from - to) <= 1 ? 1 : 0;
  };
}

TEST(SparseAttention, BlocksShowTheirNeighborsAndTheEnds) {
  for (const auto& [block, random, length] :
       {std::tuple<int64_t, int64_t, int64_t>{4, 1, 100}, {4, 3, 45}, {4, 3, 44}, {3, 0, 16}, {8, 2, 73}, {1, 1, 9}}) {
    SCOPED_TRACE(length);
    const BlockSparse pattern{block, random};
    const Count count = blocks(pattern, length);
    expect_equal(inputs({{length, {}, {}}, {length, {}, {}}, {length, after(length - 9, 9), {}}, {length, {}, {}}},
                        {length, length - 4, 9, 2}),
                 {.scale = 0.3, .pattern = pattern}, {count, count, count, count});
  }
}

TEST(SparseAttention, WithoutColumnsTheSequencesArePackedAndHaveNoGlobalTokens) {
  const Inputs in = inputs({{50, {}, {}}, {20, {}, {}}}, {50, 20});
  for (const SparseOptions& options : {SparseOptions{.scale = 0.3, .pattern = SlidingWindow{4}},
                                       SparseOptions{.scale = 0.3, .pattern = BlockSparse{2, 1}}}) {
    const at::Tensor with = sparse_attention(in.q, in.k, in.v, {}, in.spans, in.columns, options);
    EXPECT_TRUE(with.equal(sparse_attention(in.q, in.k, in.v, {}, in.spans, {}, options)));
  }
}

TEST(SparseAttention, ARankWithoutHeadsHasNothingToDo) {
  const at::Tensor none = at::empty({7, 0, d});
  const std::vector<SequenceSpan> spans{{.first = 0, .tokens = 7, .context = 0, .keys = 7, .key_row = 0, .blocks = {}}};
  for (const SparseOptions& options :
       {SparseOptions{.pattern = SlidingWindow{2}}, SparseOptions{.pattern = BlockSparse{1, 0}}})
    EXPECT_EQ(sparse_attention(none, none, none, {}, spans, {}, options).sizes(), at::IntArrayRef({7, 0, d}));
}

TEST(SparseAttention, ColumnsOfOtherSequencesAreRefused) {
  const Inputs in = inputs({{5, {}, {}}, {5, {}, {}}}, {5, 5});
  const std::vector<SequenceColumns> one(1);
  EXPECT_THROW(sparse_attention(in.q, in.k, in.v, {}, in.spans, one, {}), std::logic_error);
}

}  // namespace
}  // namespace pm::ops
