// SPDX-License-Identifier: Apache-2.0
// Ragged and paged attention compared with the plain formula on contiguous keys, for each cache type with its
// tolerance.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/backend.h"
#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::ops {
namespace {

struct Case {
  int64_t heads, kv_heads, d;
  std::vector<reference::SequenceShape> sequences;  // context, queries
  AttentionOptions options;
  at::ScalarType type = at::kFloat;
  double tolerance = 2e-6;
};

/// What rounding a softmax's weights to bf16 adds, on CPUs whose kernels do.
double rounding(at::ScalarType cache) { return cache == at::kBFloat16 && kernels().bf16_products ? 4e-3 : 0; }

/// Runs the same sequences through the paged cache and through ragged attention.
void run(const Case& c) {
  SCOPED_TRACE(std::string(c10::toString(c.type)) + " window " + std::to_string(c.options.window));
  at::manual_seed(7);
  const reference::AttentionInputs inputs = reference::attention_inputs(c.heads, c.kv_heads, c.d, c.sequences, c.type);
  at::Tensor k_cache = at::zeros({inputs.blocks, c.kv_heads, block_tokens, c.d}, c.type),
             v_cache = at::zeros_like(k_cache);
  write_kv(inputs.k, inputs.v, inputs.slots, k_cache, v_cache);
  const at::Tensor expected = reference::attention(inputs, c.options);
  const auto error = [&](const at::Tensor& got) { return (got.to(at::kDouble) - expected).abs().max().item<double>(); };
  EXPECT_LT(error(paged_attention(inputs.q, k_cache, v_cache, inputs.sequences, c.options)),
            std::max(c.tolerance, rounding(c.type)));
  EXPECT_LT(error(ragged_attention(inputs.q, inputs.k, inputs.v, inputs.sequences, c.options)), c.tolerance);
}

const std::vector<reference::SequenceShape> mixed{{0, 40}, {63, 1}, {5, 1}, {20, 20}, {0, 1}};

TEST(Attention, EqualsThePlainFormulaForMixedPrefillAndDecode) {
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    run({6, 6, 8, {{0, 5}, {15, 1}, {16, 1}, {40, 1}, {3, 30}}, {.scale = 0.3}, type});
    run({8, 2, 16, {{0, 17}, {31, 1}}, {.scale = 0.3}, type});
  }
}
TEST(Attention, OneQueryHasTheResultOfMany) {
  const int64_t tokens = 9, d = 40;
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t context : {0, 250, 1200}) {  // one span of keys, two, and parts that are joined
      SCOPED_TRACE(std::string(c10::toString(type)) + " context " + std::to_string(context));
      const float tolerance = type == at::kBFloat16 ? 2e-5f : 2e-6f;  // a weight may be rounded to its other neighbour
      at::manual_seed(9);
      const std::vector<reference::SequenceShape> shapes{{context, tokens}};
      const reference::AttentionInputs inputs = reference::attention_inputs(4, 2, d, shapes, type);
      at::Tensor k_cache = at::zeros({inputs.blocks, 2, block_tokens, d}, type), v_cache = at::zeros_like(k_cache);
      write_kv(inputs.k, inputs.v, inputs.slots, k_cache, v_cache);
      const at::Tensor q = at::randn({tokens, 4, d});  // which is rounded
      for (const double softcap : {0.0, 3.0}) {
        const AttentionOptions options{.scale = 0.3, .softcap = softcap, .window = 700};
        const at::Tensor together = paged_attention(q, k_cache, v_cache, inputs.sequences, options);
        StepSequences drafted = inputs.sequences;
        drafted.spans[0].drafts = true;
        const at::Tensor drafts = paged_attention(q, k_cache, v_cache, drafted, options);
        for (int64_t i = 0; i < tokens; ++i) {
          SequenceSpan span = inputs.sequences.spans[0];
          span.tokens = 1;
          span.context = context + i;
          span.keys = context + i + 1;
          const at::Tensor alone = paged_attention(q.narrow(0, i, 1), k_cache, v_cache, {.spans = {span}}, options);
          EXPECT_LT((alone[0] - together[i]).abs().max().item<float>(), tolerance) << "query " << i;
          EXPECT_TRUE(at::equal(alone[0], drafts[i])) << "query " << i;
        }
      }
    }
  }
}
TEST(Attention, KeysOfAModelInBf16AreRoundedWhereProductsAre) {
  at::manual_seed(8);
  const reference::AttentionInputs inputs = reference::attention_inputs(4, 2, 40, {{{0, 30}, {0, 300}}}, at::kFloat);
  const AttentionOptions options{.scale = 0.3, .causal = false, .compute_type = at::kBFloat16};
  const at::Tensor got = ragged_attention(inputs.q, inputs.k, inputs.v, inputs.sequences, options);
  const bool rounds = kernels().bf16_products != nullptr;
  const at::ScalarType type = rounds ? at::kBFloat16 : at::kFloat;
  EXPECT_TRUE(
      at::equal(got, ragged_attention(inputs.q, inputs.k.to(type), inputs.v.to(type), inputs.sequences, options)));
  const double error = (got.to(at::kDouble) - reference::attention(inputs, options)).abs().max().item<double>();
  EXPECT_LT(error, rounds ? 2e-2 : 4e-6);
}
TEST(Attention, WindowHidesWhatLiesBeforeIt) { run({4, 4, 8, mixed, {.scale = 0.3, .window = 16}}); }
TEST(Attention, WindowOfLongSequencesLeavesOutWhatNoQuerySees) {
  for (int64_t window : {1, 7, 33, 70}) {
    const std::vector<reference::SequenceShape> shapes{{0, 300}, {200, 90}, {290, 1}, {0, 20}};
    run({4, 2, 8, shapes, {.scale = 0.3, .window = window}});
    run({4, 2, 8, {{0, 300}, {0, 20}, {0, 129}}, {.scale = 0.3, .causal = false, .window = window}});
    run({2, 2, 8, {{0, 300}}, {.scale = 0.3, .softcap = 3, .causal = false, .window = window}});
  }
}
TEST(Attention, WithoutCausalityAWindowHasTwoSides) {
  run({4, 4, 8, {{0, 9}, {0, 33}}, {.scale = 0.3, .causal = false, .window = 5}});
}
TEST(Attention, WithoutCausalityEveryQuerySeesEveryKey) {
  run({4, 4, 8, {{0, 9}, {0, 33}}, {.scale = 0.3, .causal = false}});
}
TEST(Attention, TokensOfARangeSeeEachOtherWhicheverComesFirst) {
  const std::vector<reference::SequenceShape> shapes{
      {.context = 0, .tokens = 40, .bidirectional = {{3, 9}, {9, 30}}},
      {.context = 20, .tokens = 12, .bidirectional = {{4, 8}, {18, 25}}},
      {.context = 63, .tokens = 1},
      {.context = 0, .tokens = 300, .bidirectional = {{100, 180}, {290, 300}}}};
  const Backend aten;
  for (const int64_t window : {0, 7, 64}) {
    const AttentionOptions options{.scale = 0.3, .window = window};
    run({4, 2, 8, shapes, options});
    run({4, 2, 8, shapes, options, at::kBFloat16});
    const reference::AttentionInputs inputs = reference::attention_inputs(4, 2, 8, shapes, at::kFloat);
    const at::Tensor made = aten.ragged_attention(inputs.q, inputs.k, inputs.v, inputs.sequences, options, nullptr);
    EXPECT_LT((made - reference::attention(inputs, options)).abs().max().item<double>(), 2e-6) << "window " << window;
  }
}
TEST(Attention, SoftcappedScoresStayBelowTheirCap) {
  for (double softcap : {0.5, 3.0, 50.0}) {
    run({4, 2, 8, mixed, {.scale = 0.3, .softcap = softcap}});
    run({6, 1, 20, mixed, {.scale = 0.3, .softcap = softcap, .window = 16}, at::kBFloat16});
  }
}
TEST(Attention, SinksTakeTheirShareOfEveryHead) {
  const at::Tensor sinks = at::tensor({0.5f, -2.f, 3.f, 1e9f}), lone = at::tensor({-1.f, 2.f});
  for (at::ScalarType type : {at::kFloat, at::kBFloat16})
    run({4, 2, 8, {{0, 40}, {63, 1}, {1200, 1}, {20, 20}, {0, 1}}, {.scale = 0.3, .sinks = sinks}, type});
  run({4, 2, 8, {{0, 300}, {290, 1}}, {.scale = 0.3, .window = 16, .sinks = sinks}});
  run({2, 1, 20, mixed, {.scale = 0.3, .softcap = 3, .causal = true, .sinks = lone}});
}
TEST(Attention, AlibiGrowsWithTheKeysPosition) {
  run({5, 5, 8, mixed, {.scale = 0.3, .alibi = {.slopes = alibi_slopes(5)}}, at::kFloat, 5e-6});
  run({5, 5, 8, mixed, {.scale = 0.3, .alibi = {.slopes = alibi_slopes(5), .scaled = true}}, at::kFloat, 5e-6});
}
TEST(Attention, BucketsFollowTheDistance) {
  at::manual_seed(5);
  const at::Tensor table = at::randn({8, 6});
  for (bool bidirectional : {true, false}) {
    run({6,
         6,
         8,
         mixed,
         {.scale = 1, .causal = !bidirectional, .relative_bias = {table, 13, bidirectional}},
         at::kFloat,
         5e-6});
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
    for (int64_t i = 0; i < distance.size(0); ++i)
      ASSERT_EQ(got[i].item<int64_t>(), reference::relative_bucket(i - 300, 32, 128, bidirectional)) << i - 300;
  }
}

TEST(CrossAttention, SeesAllOfItsSourceAndOnlyIt) {
  at::manual_seed(2);
  const at::Tensor q = at::randn({3, 2, 4}), k = at::randn({11, 2, 4}), v = at::randn({11, 2, 4});
  const std::vector<SequenceSpan> spans{{.first = 0, .tokens = 1, .context = 0, .keys = 4, .key_row = 0, .blocks = {}},
                                        {.first = 1, .tokens = 2, .context = 0, .keys = 7, .key_row = 4, .blocks = {}}};
  const AttentionOptions options{.scale = 0.5, .causal = false};
  std::vector<at::Tensor> probabilities;
  const at::Tensor got = ragged_attention(q, k, v, {.spans = spans}, options, &probabilities);
  const at::Tensor wanted =
      at::cat({reference::attention(q.narrow(0, 0, 1), k.narrow(0, 0, 4), v.narrow(0, 0, 4), 0, options),
               reference::attention(q.narrow(0, 1, 2), k.narrow(0, 4, 7), v.narrow(0, 4, 7), 0, options)});
  EXPECT_LT((got - wanted).abs().max().item<double>(), 2e-6);
  ASSERT_EQ(probabilities.size(), 2u);
  EXPECT_EQ(probabilities[1].sizes(), (std::vector<int64_t>{2, 2, 7}));
  EXPECT_LT((probabilities[1].sum(-1) - 1).abs().max().item<float>(), 1e-6);
}

}  // namespace
}  // namespace pm::ops
