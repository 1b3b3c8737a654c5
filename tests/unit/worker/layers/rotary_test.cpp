// SPDX-License-Identifier: Apache-2.0
// The rotary embeddings of a stack: layers with equal parameters share one.
#include "worker/layers/rotary.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace pm::layers {
namespace {

policy::Rotary rotary() { return {.style = policy::RotaryStyle::Neox, .dims = 6, .theta = 100}; }

TEST(RotaryTable, EqualParametersShareAnIndexAndAnyOtherOneDoesNot) {
  std::vector<policy::Rotary> all(6, rotary());
  all[1].style = policy::RotaryStyle::Interleaved;
  all[2].dims = 4;
  all[3].theta = 50;
  all[4].scaling = {{"rope_type", "linear"}, {"factor", 2.0}};
  all[5].values = true;
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

TEST(RotaryTable, WithoutRotaryEmbeddingsPositionsAreNotRead) {
  EXPECT_TRUE(RotaryTable(at::kCPU).rotations({}).empty());
}

}  // namespace
}  // namespace pm::layers
