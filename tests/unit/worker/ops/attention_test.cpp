// Ragged and paged attention against the plain formula on contiguous keys, for each cache type with its tolerance.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "worker/ops/attention.h"

namespace pm::ops {
namespace {

struct Case {
  int64_t heads, kv_heads, d;
  std::vector<std::pair<int64_t, int64_t>> sequences;   // context, queries
  AttentionOptions options;
  at::ScalarType type = at::kFloat;
  double tolerance = 2e-6;
};

/// T5's bucket of one distance (key - query), written down from its paper rather than from the code under test.
int64_t bucket_of(int64_t distance, int64_t buckets, int64_t far, bool bidirectional) {
  int64_t first = 0, away = std::max<int64_t>(0, -distance);
  if (bidirectional) {
    buckets /= 2;
    if (distance > 0) first = buckets;
    away = std::abs(distance);
  }
  const int64_t exact = buckets / 2;
  if (away < exact) return first + away;
  const double share = std::log(static_cast<double>(away) / static_cast<double>(exact)) / std::log(static_cast<double>(far) / static_cast<double>(exact));
  return first + std::min(buckets - 1, exact + static_cast<int64_t>(share * static_cast<double>(buckets - exact) + 1e-6));
}

/// softmax(scale q k^T + bias + mask) v of one sequence, everything in fp64.
at::Tensor plain(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, int64_t context, const AttentionOptions& options) {
  const int64_t group = q.size(1) / k.size(1);
  const at::Tensor keys = k.to(at::kDouble).repeat_interleave(group, 1), values = v.to(at::kDouble).repeat_interleave(group, 1);
  at::Tensor scores = at::einsum("qhd,khd->hqk", {q.to(at::kDouble), keys}) * options.scale;
  for (int64_t i = 0; i < q.size(0); ++i) {
    for (int64_t j = 0; j < k.size(0); ++j) {
      const int64_t at = context + i;
      const bool hidden = (options.causal && j > at) || (options.window > 0 && j <= at - options.window);
      at::Tensor score = scores.select(1, i).select(1, j);   // of all heads
      if (options.alibi.slopes.defined()) score.add_(options.alibi.slopes.to(at::kDouble) * static_cast<double>(j) * (options.alibi.scaled ? options.scale : 1));
      const BucketedBias& bias = options.buckets;
      if (bias.table.defined()) score.add_(bias.table[bucket_of(j - at, bias.table.size(0), bias.far, bias.bidirectional)].to(at::kDouble));
      if (options.softcap > 0) score.copy_(options.softcap * at::tanh(score / options.softcap));
      if (hidden) score.fill_(-INFINITY);
    }
  }
  return at::einsum("hqk,khd->qhd", {at::softmax(scores, -1), values});
}

/// The same sequences through the paged cache and, where they begin at 0, inside the rows.
void run(const Case& c) {
  SCOPED_TRACE(std::string(c10::toString(c.type)) + " window " + std::to_string(c.options.window));
  at::manual_seed(7);
  const int64_t blocks = 64;
  at::Tensor k_cache = at::zeros({blocks, c.kv_heads, block_tokens, c.d}, c.type), v_cache = at::zeros_like(k_cache);
  std::vector<int32_t> order(blocks);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(3));
  std::vector<SequenceSpan> spans;
  std::vector<std::vector<int32_t>> tables;
  std::vector<at::Tensor> queries, keys, values, expected;
  size_t next = 0;
  int64_t row = 0, key_row = 0;
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
    keys.push_back(k);
    values.push_back(v);
    expected.push_back(plain(q, k, v, context, c.options));
    spans.push_back({.first = row, .tokens = tokens, .context = context, .keys = length, .key_row = key_row, .blocks = {}});
    tables.push_back(std::move(table));
    row += tokens;
    key_row += length;
  }
  for (size_t i = 0; i < spans.size(); ++i) spans[i].blocks = tables[i];
  const auto error = [&](const at::Tensor& got) { return (got.to(at::kDouble) - at::cat(expected)).abs().max().item<double>(); };
  EXPECT_LT(error(paged_attention(at::cat(queries), k_cache, v_cache, spans, c.options)), c.tolerance);
  EXPECT_LT(error(ragged_attention(at::cat(queries), at::cat(keys), at::cat(values), spans, c.options)), c.tolerance);
}

const std::vector<std::pair<int64_t, int64_t>> mixed{{0, 40}, {63, 1}, {5, 1}, {20, 20}, {0, 1}};

TEST(Attention, EqualsThePlainFormulaForMixedPrefillAndDecode) {
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    run({6, 6, 8, {{0, 5}, {15, 1}, {16, 1}, {40, 1}, {3, 30}}, {.scale = 0.3}, type});
    run({8, 2, 16, {{0, 17}, {31, 1}}, {.scale = 0.3}, type});
  }
}
TEST(Attention, WindowHidesWhatLiesBeforeIt) { run({4, 4, 8, mixed, {.scale = 0.3, .window = 16}}); }
TEST(Attention, WithoutCausalityEveryQuerySeesEveryKey) { run({4, 4, 8, {{0, 9}, {0, 33}}, {.scale = 0.3, .causal = false}}); }
TEST(Attention, SoftcappedScoresStayBelowTheirCap) {
  for (double softcap : {0.5, 3.0, 50.0}) {
    run({4, 2, 8, mixed, {.scale = 0.3, .softcap = softcap}});
    run({6, 1, 20, mixed, {.scale = 0.3, .softcap = softcap, .window = 16}, at::kBFloat16});
  }
}
TEST(Attention, AlibiGrowsWithTheKeysPosition) {
  run({5, 5, 8, mixed, {.scale = 0.3, .alibi = {.slopes = alibi_slopes(5)}}, at::kFloat, 5e-6});
  run({5, 5, 8, mixed, {.scale = 0.3, .alibi = {.slopes = alibi_slopes(5), .scaled = true}}, at::kFloat, 5e-6});
}
TEST(Attention, BucketsFollowTheDistance) {
  at::manual_seed(5);
  const at::Tensor table = at::randn({8, 6});
  for (bool bidirectional : {true, false}) {
    run({6, 6, 8, mixed, {.scale = 1, .causal = !bidirectional, .buckets = {table, 13, bidirectional}}, at::kFloat, 5e-6});
  }
}

TEST(AlibiSlopes, ArePowersForPowersOfTwoAndInterleavedBeyond) {
  EXPECT_TRUE(at::allclose(alibi_slopes(8), at::exp2(at::arange(-1, -9, -1).to(at::kFloat))));
  EXPECT_TRUE(at::allclose(alibi_slopes(6), at::tensor({0.25f, 0.0625f, 0.015625f, 0.00390625f, 0.5f, 0.125f})));
}

TEST(RelativeBuckets, AreThoseOfT5) {
  const at::Tensor distance = at::arange(-300, 301, at::kLong);
  for (bool bidirectional : {true, false}) {
    const at::Tensor got = relative_buckets(distance, 32, 128, bidirectional);
    for (int64_t i = 0; i < distance.size(0); ++i) ASSERT_EQ(got[i].item<int64_t>(), bucket_of(i - 300, 32, 128, bidirectional)) << i - 300;
  }
}

TEST(CrossAttention, SeesAllOfItsSourceAndOnlyIt) {
  at::manual_seed(2);
  const at::Tensor q = at::randn({3, 2, 4}), k = at::randn({11, 2, 4}), v = at::randn({11, 2, 4});
  const std::vector<SequenceSpan> spans{{.first = 0, .tokens = 1, .context = 0, .keys = 4, .key_row = 0, .blocks = {}}, {.first = 1, .tokens = 2, .context = 0, .keys = 7, .key_row = 4, .blocks = {}}};
  const AttentionOptions options{.scale = 0.5, .causal = false};
  std::vector<at::Tensor> probabilities;
  const at::Tensor got = ragged_attention(q, k, v, spans, options, &probabilities);
  const at::Tensor wanted = at::cat({plain(q.narrow(0, 0, 1), k.narrow(0, 0, 4), v.narrow(0, 0, 4), 0, options), plain(q.narrow(0, 1, 2), k.narrow(0, 4, 7), v.narrow(0, 4, 7), 0, options)});
  EXPECT_LT((got - wanted).abs().max().item<double>(), 2e-6);
  ASSERT_EQ(probabilities.size(), 2u);
  EXPECT_EQ(probabilities[1].sizes(), (std::vector<int64_t>{2, 2, 7}));
  EXPECT_LT((probabilities[1].sum(-1) - 1).abs().max().item<float>(), 1e-6);
}

}  // namespace
}  // namespace pm::ops
