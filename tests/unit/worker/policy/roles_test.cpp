// SPDX-License-Identifier: Apache-2.0
// The role table: every role has a sharding rule, and a column bias is sharded with its weight while a row bias is not.
#include <gtest/gtest.h>

#include "worker/policy/roles.h"

namespace pm::policy {
namespace {

TEST(Roles, EachHasARuleAndAName) {
  for (int i = 0; i <= static_cast<int>(Role::Scalar); ++i) {
    const ShardingRule rule = sharding_rule(static_cast<Role>(i));
    EXPECT_NE(name_of(static_cast<Role>(i)), "?") << i;
    EXPECT_EQ(rule.dim == -1, rule.sharding == Sharding::Replicated) << i;
    EXPECT_EQ(rule.axis == Axis::None || rule.axis == Axis::Latent, rule.sharding == Sharding::Replicated) << i;
  }
}

TEST(Roles, AColumnBiasIsCutLikeItsWeightAndARowBiasIsWhole) {
  for (auto [weight, bias] : {std::pair{Role::QueryWeight, Role::QueryBias},
                              {Role::KeyWeight, Role::KeyBias},
                              {Role::ValueWeight, Role::ValueBias},
                              {Role::UpWeight, Role::UpBias},
                              {Role::GateWeight, Role::GateBias},
                              {Role::BottleneckWeight, Role::BottleneckBias},
                              {Role::BucketWeight, Role::BucketBias},
                              {Role::LogitsWeight, Role::LogitsBias}}) {
    EXPECT_EQ(sharding_rule(weight).axis, sharding_rule(bias).axis);
    EXPECT_EQ(sharding_rule(weight).dim, 0);
    EXPECT_EQ(sharding_rule(bias).dim, 0);
  }
  for (auto [weight, bias] : {std::pair{Role::OutWeight, Role::OutBias}, {Role::DownWeight, Role::DownBias}}) {
    EXPECT_EQ(sharding_rule(weight).dim, 1);
    EXPECT_EQ(sharding_rule(bias).sharding, Sharding::Replicated);
  }
}

TEST(Roles, QueriesAreCutByHeadsAndKeysAndValuesByRows) {
  EXPECT_EQ(sharding_rule(Role::QueryWeight).axis, Axis::Heads);
  EXPECT_EQ(sharding_rule(Role::OutWeight).axis, Axis::Heads);
  EXPECT_EQ(sharding_rule(Role::BucketWeight).axis, Axis::Heads);
  for (const Role role : {Role::KeyWeight, Role::KeyBias, Role::ValueWeight, Role::ValueBias})
    EXPECT_EQ(sharding_rule(role).axis, Axis::KvRows);
}

TEST(Roles, TablesAreCutByRows) {
  EXPECT_EQ(sharding_rule(Role::PositionEmbedding).axis, Axis::Positions);
  EXPECT_EQ(sharding_rule(Role::PositionEmbedding).dim, 0);
  EXPECT_EQ(sharding_rule(Role::IndexTable).sharding, Sharding::Replicated);
  EXPECT_EQ(sharding_rule(Role::BranchWeight).axis, Axis::Groups);
  EXPECT_EQ(sharding_rule(Role::BranchBias).axis, Axis::Groups);
  EXPECT_EQ(sharding_rule(Role::SegmentStates).axis, Axis::Heads);
  EXPECT_EQ(sharding_rule(Role::DistanceVectors).sharding, Sharding::Replicated) << "all heads read them";
}

TEST(Roles, TiedTablesAreCutAlike) {
  EXPECT_EQ(sharding_rule(Role::TokenEmbedding).sharding, sharding_rule(Role::LogitsWeight).sharding);
  EXPECT_EQ(sharding_rule(Role::TokenEmbedding).dim, sharding_rule(Role::LogitsWeight).dim);
}

}  // namespace
}  // namespace pm::policy
