// The role table: every role has a cut, and bias rules hold (a column bias is cut with its weight, a row bias is not).
#include <gtest/gtest.h>

#include "worker/policy/roles.h"

namespace pm::policy {
namespace {

TEST(Roles, EachHasARuleAndAName) {
  for (int i = 0; i <= static_cast<int>(Role::Scalar); ++i) {
    const CutRule rule = rule_of(static_cast<Role>(i));
    EXPECT_NE(name_of(static_cast<Role>(i)), "?") << i;
    EXPECT_EQ(rule.dim == -1, rule.cut == Cut::Replicated) << i;
    EXPECT_EQ(rule.axis == Axis::None, rule.cut == Cut::Replicated) << i;
  }
}

TEST(Roles, AColumnBiasIsCutLikeItsWeightAndARowBiasIsWhole) {
  for (auto [weight, bias] : {std::pair{Role::QueryWeight, Role::QueryBias}, {Role::KeyWeight, Role::KeyBias}, {Role::ValueWeight, Role::ValueBias},
                              {Role::UpWeight, Role::UpBias}, {Role::GateWeight, Role::GateBias}, {Role::LogitsWeight, Role::LogitsBias}}) {
    EXPECT_EQ(rule_of(weight).axis, rule_of(bias).axis);
    EXPECT_EQ(rule_of(weight).dim, 0);
    EXPECT_EQ(rule_of(bias).dim, 0);
  }
  for (auto [weight, bias] : {std::pair{Role::OutWeight, Role::OutBias}, {Role::DownWeight, Role::DownBias}}) {
    EXPECT_EQ(rule_of(weight).dim, 1);
    EXPECT_EQ(rule_of(bias).cut, Cut::Replicated);
  }
}

TEST(Roles, QueriesAreCutByHeadsAndKeysAndValuesByRows) {
  EXPECT_EQ(rule_of(Role::QueryWeight).axis, Axis::Heads);
  EXPECT_EQ(rule_of(Role::OutWeight).axis, Axis::Heads);
  for (const Role role : {Role::KeyWeight, Role::KeyBias, Role::ValueWeight, Role::ValueBias}) EXPECT_EQ(rule_of(role).axis, Axis::KvRows);
}

TEST(Roles, TablesAreCutByRows) {
  EXPECT_EQ(rule_of(Role::PositionEmbedding).axis, Axis::Positions);
  EXPECT_EQ(rule_of(Role::PositionEmbedding).dim, 0);
  EXPECT_EQ(rule_of(Role::IndexTable).cut, Cut::Replicated);
}

TEST(Roles, TiedTablesAreCutAlike) {
  EXPECT_EQ(rule_of(Role::TokenEmbedding).cut, rule_of(Role::LogitsWeight).cut);
  EXPECT_EQ(rule_of(Role::TokenEmbedding).dim, rule_of(Role::LogitsWeight).dim);
}

}  // namespace
}  // namespace pm::policy
