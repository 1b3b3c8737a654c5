// Paged attention against the plain formula on contiguous keys, for each cache type with its tolerance.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "worker/ops/attention.h"

namespace pm::ops {
namespace {

struct Case { int64_t heads, kv_heads, d; std::vector<std::pair<int64_t, int64_t>> sequences; bool causal; int64_t window; at::ScalarType type; double tolerance; };

/// softmax(scale q k^T + mask) v of one sequence, everything in fp64.
at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t context, const AttentionOptions& options) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = k.to(at::kDouble).repeat_interleave(group, 1), values = v.to(at::kDouble).repeat_interleave(group, 1);
  at::Tensor scores = at::einsum("qhd,khd->hqk", {q.to(at::kDouble), keys}) * options.scale;
  for (int64_t i = 0; i < q.size(0); ++i) {
    for (int64_t j = 0; j < k.size(0); ++j) {
      const int64_t at = context + i;
      const bool hidden = (options.causal && j > at) || (options.window > 0 && j <= at - options.window);
      if (hidden) scores.index_put_({at::indexing::Slice(), i, j}, at::scalar_tensor(-INFINITY, at::kDouble));
    }
  }
  return at::einsum("hqk,khd->qhd", {at::softmax(scores, -1), values});
}

void run(const Case& c) {
  SCOPED_TRACE(std::string(c10::toString(c.type)) + " window " + std::to_string(c.window));
  at::manual_seed(7);
  const int64_t blocks = 64;
  at::Tensor k_cache = at::zeros({blocks, c.kv_heads, block_tokens, c.d}, c.type), v_cache = at::zeros_like(k_cache);
  std::vector<int32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  const AttentionOptions options{0.3, c.causal, c.window};
  std::vector<SequenceSpan> spans;
  std::vector<std::vector<int32_t>> tables;
  std::vector<at::Tensor> queries, expected;
  size_t next = 0;
  int64_t row = 0;
  for (auto [context, tokens] : c.sequences) {
    const int64_t length = context + tokens;
    at::Tensor k = at::randn({length, c.kv_heads, c.d}).to(c.type).to(at::kFloat), v = at::randn({length, c.kv_heads, c.d}).to(c.type).to(at::kFloat);
    std::vector<int32_t> table(order.begin() + static_cast<std::ptrdiff_t>(next), order.begin() + static_cast<std::ptrdiff_t>(next) + (length + 15) / 16);
    next += table.size();
    std::vector<int64_t> slots;
    for (int64_t t = 0; t < length; ++t) slots.push_back(table[static_cast<size_t>(t / 16)] * 16 + t % 16);
    write_kv(k, v, at::tensor(slots), k_cache, v_cache);
    at::Tensor q = at::randn({tokens, c.heads, c.d});
    queries.push_back(q);
    expected.push_back(plain(q, k, v, context, options));
    spans.push_back({row, tokens, context, {}});
    tables.push_back(std::move(table));
    row += tokens;
  }
  for (size_t i = 0; i < spans.size(); ++i) spans[i].blocks = tables[i];
  const at::Tensor got = paged_attention(at::cat(queries), k_cache, v_cache, spans, options);
  const double error = (got.to(at::kDouble) - at::cat(expected)).abs().max().item<double>();
  EXPECT_LT(error, c.tolerance);
}

TEST(PagedAttention, EqualsThePlainFormulaForMixedPrefillAndDecode) {
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    run({6, 6, 8, {{0, 5}, {15, 1}, {16, 1}, {40, 1}, {3, 30}}, true, 0, type, 2e-6});
    run({8, 2, 16, {{0, 17}, {31, 1}}, true, 0, type, 2e-6});
  }
}
TEST(PagedAttention, WindowHidesWhatLiesBeforeIt) { run({4, 4, 8, {{0, 40}, {63, 1}, {5, 1}, {20, 20}}, true, 16, at::kFloat, 2e-6}); }
TEST(PagedAttention, WithoutCausalityEveryQuerySeesEveryKey) { run({4, 4, 8, {{0, 9}, {0, 33}}, false, 0, at::kFloat, 2e-6}); }

TEST(PagedAttention, ReturnsProbabilitiesThatSumToOne) {
  at::Tensor k_cache = at::randn({2, 3, 16, 4}), v_cache = at::randn({2, 3, 16, 4});
  const std::vector<int32_t> table{1, 0};
  const std::vector<SequenceSpan> spans{{0, 4, 14, table}};
  std::vector<at::Tensor> probabilities;
  paged_attention(at::randn({4, 3, 4}), k_cache, v_cache, spans, {1, true, 0}, &probabilities);
  ASSERT_EQ(probabilities.size(), 1u);
  EXPECT_EQ(probabilities[0].sizes(), (std::vector<int64_t>{3, 4, 18}));
  EXPECT_LT((probabilities[0].sum(-1) - 1).abs().max().item<float>(), 1e-6);
  EXPECT_EQ(probabilities[0][0][0][15].item<float>(), 0.f);
}

}  // namespace
}  // namespace pm::ops
