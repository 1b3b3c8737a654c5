// SPDX-License-Identifier: Apache-2.0
// The rotary embeddings of a stack: layers with equal parameters share one.
#include "worker/layers/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pm::layers {
namespace {

policy::Rotary rotary() { return {.style = policy::RotaryStyle::Neox, .dims = 6, .theta = 100}; }

TEST(RotaryTable, EqualParametersShareAnIndexAndAnyOtherOneDoesNot) {
  std::vector<policy::Rotary> all(7, rotary());
  all[1].style = policy::RotaryStyle::Interleaved;
  all[2].dims = 4;
  all[3].theta = 50;
  all[4].scaling = {{"rope_type", "linear"}, {"factor", 2.0}};
  all[5].values = true;
  all[6].axes = {.count = 3, .of_frequency = {0, 1, 2}, .exponents = {}};
  RotaryTable table(at::kCPU);
  for (int time = 0; time < 2; ++time) {
    for (size_t i = 0; i < all.size(); ++i) EXPECT_EQ(table.add(all[i]), i);
  }
  const at::Tensor positions = at::tensor({0, 3, 40}, at::kLong);
  const std::vector<ops::Rotation> rotations = table.rotations(positions);
  ASSERT_EQ(rotations.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const ops::Rotation alone = Rotary(all[i]).rotation(positions);
    EXPECT_TRUE(at::equal(rotations[i].angles.cos, alone.angles.cos)) << i;
    EXPECT_TRUE(at::equal(rotations[i].angles.sin, alone.angles.sin)) << i;
    EXPECT_EQ(rotations[i].is_neox, alone.is_neox) << i;
    EXPECT_EQ(rotations[i].rotate_values, alone.rotate_values) << i;
  }
}

TEST(Rotary, FrequenciesTurnByTheAxisThatTheyHave) {
  policy::Rotary axial = rotary();
  axial.axes = {.count = 3, .of_frequency = {0, 2, 1}, .exponents = {}};
  const at::Tensor positions = at::tensor({5, 6}, at::kLong),
                   axes = at::tensor({5, 1, 9, 6, 0, 4}, at::kLong).view({2, 3});
  const at::Tensor frequencies = at::pow(100, at::tensor({0.0F, 2.0F, 4.0F}) / -6),
                   turns = at::tensor({5.0F, 9.0F, 1.0F, 6.0F, 4.0F, 0.0F}).view({2, 3}) * frequencies;
  const ops::Rotation found = Rotary(axial).rotation(positions, {}, axes);
  EXPECT_TRUE(at::allclose(found.angles.cos.squeeze(1), at::cos(turns)));
  EXPECT_TRUE(at::allclose(found.angles.sin.squeeze(1), at::sin(turns)));
  EXPECT_TRUE(at::equal(Rotary(axial).rotation(positions).angles.cos, Rotary(rotary()).rotation(positions).angles.cos))
      << "without positions along axes, all of them are the position";
}

TEST(Rotary, AxesMayHaveFrequenciesOfTheirOwn) {
  policy::Rotary axial = {.style = policy::RotaryStyle::Neox, .dims = 8, .theta = 100};
  axial.axes = {.count = 2, .of_frequency = {0, 0, 1, 1}, .exponents = {0, 0.5, 0, 0.5}};
  const at::Tensor axes = at::tensor({3, 7}, at::kLong).view({1, 2});
  const at::Tensor turns = at::tensor({3.0F, 3.0F / 10, 7.0F, 7.0F / 10});
  const ops::Rotation found = Rotary(axial).rotation(at::zeros({1}, at::kLong), {}, axes);
  EXPECT_TRUE(at::allclose(found.angles.cos.flatten(), at::cos(turns)));
}

TEST(Rotary, LongSequencesHaveOtherFrequenciesAndAnotherFactor) {
  policy::Rotary longrope = rotary();
  longrope.long_rope = {.original = 4,
                        .short_factors = {1, 2, 4},
                        .long_factors = {2, 4, 8},
                        .short_attention = 0.5,
                        .long_attention = 3};
  policy::Rotary plain = rotary();
  const at::Tensor positions = at::tensor({0, 3, 4, 9}, at::kLong),
                   forced = at::tensor({1, 0, 0, 0}, at::kLong).to(at::kBool);
  const ops::Rotation by_place = Rotary(longrope).rotation(positions),
                      by_length = Rotary(longrope).rotation(positions, forced);
  const at::Tensor turn =
      positions.to(at::kFloat).unsqueeze(1) * at::pow(100, at::tensor({0.0F, 2.0F, 4.0F}) / -6).unsqueeze(0);
  const at::Tensor usual = at::cos(turn / at::tensor({1.0F, 2.0F, 4.0F})) * 0.5,
                   stretched = at::cos(turn / at::tensor({2.0F, 4.0F, 8.0F})) * 3;
  const at::Tensor found = by_place.angles.cos.squeeze(1);
  EXPECT_TRUE(at::allclose(found.narrow(0, 0, 2), usual.narrow(0, 0, 2)));
  EXPECT_TRUE(at::allclose(found.narrow(0, 2, 2), stretched.narrow(0, 2, 2)));
  EXPECT_TRUE(at::allclose(by_length.angles.cos.squeeze(1)[0], stretched[0]));
  EXPECT_TRUE(at::allclose(by_length.angles.cos.squeeze(1)[1], usual[1]));
  EXPECT_FALSE(by_place.query_factors.defined());
}

TEST(Rotary, QueriesGrowWithThePosition) {
  policy::Rotary growing = rotary();
  growing.query_growth = {.beta = 0.1, .original = 10};
  const at::Tensor positions = at::tensor({0, 9, 10, 25}, at::kLong);
  const at::Tensor factors = Rotary(growing).rotation(positions).query_factors;
  ASSERT_EQ(factors.sizes(), (std::vector<int64_t>{4, 1, 1}));
  const float ln2 = std::log(2.0F), ln3 = std::log(3.0F);
  EXPECT_TRUE(at::allclose(factors.flatten(), at::tensor({1.0F, 1.0F, 1 + 0.1F * ln2, 1 + 0.1F * ln3})));
  growing.query_growth->offset = 1;
  const at::Tensor earlier = Rotary(growing).rotation(positions).query_factors;
  EXPECT_TRUE(at::allclose(earlier.flatten(), at::tensor({1.0F, 1 + 0.1F * ln2, 1 + 0.1F * ln2, 1 + 0.1F * ln3})));
}

TEST(Rotary, NoFrequencyLeavesVectorsExactlyAsTheyAre) {
  policy::Rotary still = rotary();
  still.scaling = {{"rope_type", "proportional"}, {"partial_rotary_factor", 0}};
  const ops::Angles angles = Rotary(still).rotation(at::tensor({0, 1, 1000}, at::kLong)).angles;
  EXPECT_TRUE(at::equal(angles.cos, at::ones_like(angles.cos)));
  EXPECT_TRUE(at::equal(angles.sin, at::zeros_like(angles.sin)));
}

TEST(RotaryTable, WithoutRotaryEmbeddingsPositionsAreNotRead) {
  EXPECT_TRUE(RotaryTable(at::kCPU).rotations({}).empty());
}

}  // namespace
}  // namespace pm::layers
