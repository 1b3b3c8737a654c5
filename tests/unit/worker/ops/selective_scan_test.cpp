// SPDX-License-Identifier: Apache-2.0
// The selective scan by chunks and in steps, compared with its formula for each token and number.
#include "worker/ops/recurrent/selective_scan.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pm::ops {
namespace {

constexpr int64_t groups = 2, heads = 6, state_size = 5, head_dim = 4;

SelectiveScan random_space(int64_t tokens) {
  at::manual_seed(11 + tokens);
  return {.reads = at::randn({tokens, groups, state_size}),
          .writes = at::randn({tokens, groups, state_size}),
          .values = at::randn({tokens, heads, head_dim}),
          .decays = at::rand({tokens, heads}).mul_(-0.5)};
}

/// The formula, in doubles.
at::Tensor by_formula(const SelectiveScan& s, at::Tensor& state) {
  at::Tensor all = state.to(at::kDouble), out = at::zeros({s.values.size(0), heads, head_dim}, at::kDouble);
  for (int64_t t = 0; t < s.values.size(0); ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t group = h / (heads / groups);
      const at::Tensor own = all[h] * std::exp(s.decays[t][h].item<double>()) +
                             at::outer(s.writes[t][group].to(at::kDouble), s.values[t][h].to(at::kDouble));
      out[t][h].copy_(at::matmul(s.reads[t][group].to(at::kDouble), own));
      all[h].copy_(own);
    }
  }
  state = all;
  return out;
}

class SelectiveScans : public testing::TestWithParam<int64_t> {};

TEST_P(SelectiveScans, AreTheFormula) {
  const SelectiveScan space = random_space(GetParam());
  at::Tensor state = at::randn({heads, state_size, head_dim}), wanted_state = state;
  const at::Tensor wanted = by_formula(space, wanted_state), found = selective_scan(space, state);
  EXPECT_TRUE(at::allclose(found.to(at::kDouble), wanted, 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(state.to(at::kDouble), wanted_state, 1e-4, 1e-4));
}

// one token, the last number that runs in steps, the first by a chunk, the edges of chunks
INSTANTIATE_TEST_SUITE_P(Tokens, SelectiveScans, testing::Values(1, 15, 16, 63, 64, 65, 200));

TEST(SelectiveScan, APromptInPiecesIsThePromptAtOnce) {
  const SelectiveScan whole = random_space(150);
  at::Tensor state = at::zeros({heads, state_size, head_dim}), in_pieces = state;
  const at::Tensor wanted = selective_scan(whole, state);
  std::vector<at::Tensor> parts;
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 33}, {33, 40}, {40, 41}, {41, 150}}) {
    const auto part = [&](const at::Tensor& x) { return x.slice(0, begin, end); };
    parts.push_back(
        selective_scan({part(whole.reads), part(whole.writes), part(whole.values), part(whole.decays)}, in_pieces));
  }
  EXPECT_TRUE(at::allclose(at::cat(parts), wanted, 1e-4, 1e-4));
  EXPECT_TRUE(at::allclose(in_pieces, state, 1e-4, 1e-4));
}

TEST(SelectiveScan, AStepOfSeveralSequencesIsThatOfEach) {
  const SelectiveScan step = random_space(3);
  at::Tensor states = at::randn({3, heads, state_size, head_dim});
  const at::Tensor before = states.clone(), found = selective_scan_step(step, states);
  for (int64_t i = 0; i < 3; ++i) {
    const auto one = [&](const at::Tensor& x) { return x.slice(0, i, i + 1); };
    at::Tensor state = before[i].clone();
    const at::Tensor wanted =
        selective_scan({one(step.reads), one(step.writes), one(step.values), one(step.decays)}, state);
    EXPECT_TRUE(at::allclose(found.slice(0, i, i + 1), wanted, 1e-5, 1e-5));
    EXPECT_TRUE(at::allclose(states[i], state, 1e-5, 1e-5));
  }
}

}  // namespace
}  // namespace pm::ops
