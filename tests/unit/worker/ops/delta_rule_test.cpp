// SPDX-License-Identifier: Apache-2.0
// The gated delta rule by chunks and in steps, compared with its formula for each token and number.
#include "worker/ops/recurrent/delta_rule.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pm::ops {
namespace {

constexpr int64_t heads = 3, key_dim = 5, value_dim = 4;

DeltaRule random_rule(int64_t tokens) {
  at::manual_seed(7 + tokens);
  const auto of_length_one = [](const at::Tensor& x) { return x / x.norm(2, {-1}, true); };
  return {.queries = of_length_one(at::randn({tokens, heads, key_dim})) / std::sqrt(static_cast<double>(key_dim)),
          .keys = of_length_one(at::randn({tokens, heads, key_dim})),
          .values = at::randn({tokens, heads, value_dim}),
          .decays = at::rand({tokens, heads}).mul_(-0.5),
          .rates = at::rand({tokens, heads})};
}

/// The formula, in doubles.
at::Tensor by_formula(const DeltaRule& r, at::Tensor& state) {
  at::Tensor s = state.to(at::kDouble), out = at::zeros({r.keys.size(0), heads, value_dim}, at::kDouble);
  for (int64_t t = 0; t < r.keys.size(0); ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const at::Tensor k = r.keys[t][h].to(at::kDouble), v = r.values[t][h].to(at::kDouble);
      at::Tensor own = s[h] * std::exp(r.decays[t][h].item<double>());
      own = own + at::outer(k, (v - at::matmul(k, own)) * r.rates[t][h].item<double>());
      out[t][h].copy_(at::matmul(r.queries[t][h].to(at::kDouble), own));
      s[h].copy_(own);
    }
  }
  state = s;
  return out;
}

class DeltaRules : public testing::TestWithParam<int64_t> {};

TEST_P(DeltaRules, AreTheFormula) {
  const DeltaRule rule = random_rule(GetParam());
  at::Tensor state = at::randn({heads, key_dim, value_dim}), wanted_state = state;
  const at::Tensor wanted = by_formula(rule, wanted_state), found = delta_rule(rule, state);
  EXPECT_TRUE(at::allclose(found.to(at::kDouble), wanted, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(state.to(at::kDouble), wanted_state, 1e-5, 1e-5));
}

// one token, the last number that runs in steps, the first by a chunk, the edges of chunks
INSTANTIATE_TEST_SUITE_P(Tokens, DeltaRules, testing::Values(1, 15, 16, 63, 64, 65, 200));

TEST(DeltaRule, APromptInPiecesIsThePromptAtOnce) {
  const DeltaRule whole = random_rule(150);
  at::Tensor state = at::zeros({heads, key_dim, value_dim}), in_pieces = state;
  const at::Tensor wanted = delta_rule(whole, state);
  std::vector<at::Tensor> parts;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 33}, {33, 40}, {40, 41}, {41, 150}}) {
    const auto part = [&](const at::Tensor& x) { return x.slice(0, begin, end); };
    parts.push_back(delta_rule(
        {part(whole.queries), part(whole.keys), part(whole.values), part(whole.decays), part(whole.rates)}, in_pieces));
  }
  EXPECT_TRUE(at::allclose(at::cat(parts), wanted, 1e-5, 1e-5));
  EXPECT_TRUE(at::allclose(in_pieces, state, 1e-5, 1e-5));
}

TEST(DeltaRule, AStepOfSeveralSequencesIsThatOfEach) {
  const DeltaRule rule = random_rule(6);  // each token of another sequence
  const at::Tensor before = at::randn({6, heads, key_dim, value_dim});
  at::Tensor states = before;
  const at::Tensor found = delta_rule_step(rule, states);
  for (int64_t i = 0; i < 6; ++i) {
    const auto own = [&](const at::Tensor& x) { return x.narrow(0, i, 1); };
    at::Tensor state = before[i];
    const at::Tensor wanted =
        delta_rule({own(rule.queries), own(rule.keys), own(rule.values), own(rule.decays), own(rule.rates)}, state);
    EXPECT_TRUE(at::allclose(found[i], wanted[0], 1e-6, 1e-6));
    EXPECT_TRUE(at::allclose(states[i], state, 1e-6, 1e-6));
  }
  EXPECT_FALSE(at::equal(states, before));
}

TEST(DeltaRule, ADecayOfNothingForgetsAll) {
  DeltaRule rule = random_rule(20);
  rule.decays.fill_(-1e30);
  at::Tensor state = at::full({heads, key_dim, value_dim}, 1e30f);
  const at::Tensor found = delta_rule(rule, state);
  EXPECT_TRUE(found.isfinite().all().item<bool>());
  EXPECT_TRUE(state.isfinite().all().item<bool>());
}

}  // namespace
}  // namespace pm::ops
