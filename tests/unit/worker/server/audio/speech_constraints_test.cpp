// SPDX-License-Identifier: Apache-2.0
#include "worker/server/audio/speech_constraints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm::test {
namespace {

using server::SpeechTokens;
using testing::ElementsAre;

/// Text 0 and 1, the end 2, languages 3 and 4, no times 5, times 6 to 11.
const SpeechTokens tokens{.vocabulary = 12, .no_timestamps = 5, .languages = {{"de", 4}, {"en", 3}}, .most_initial = 1};
constexpr int32_t end = 2;

struct Step {
  std::vector<int64_t> ids;
  bool may_end = false;
};

/// Returns what may follow these tokens.
Step after(const std::vector<int32_t>& written) {
  const auto constraint = server::times_constraint(tokens, end)->fork();
  for (const int32_t id : written) {
    constraint->next();
    EXPECT_FALSE(constraint->append(id));
    EXPECT_FALSE(constraint->may_end());
  }
  const engine::TokenMask mask = constraint->next();
  EXPECT_EQ(mask.joint_from, 6);
  EXPECT_EQ(mask.may_end, constraint->may_end());
  Step step{.may_end = mask.may_end};
  for (int64_t id = 0; id < tokens.vocabulary; ++id)
    if (mask.allows(id)) step.ids.push_back(id);
  return step;
}

TEST(TimesConstraint, TheFirstTokenIsAnEarlyTime) {
  EXPECT_THAT(after({}).ids, ElementsAre(6, 7));
  EXPECT_FALSE(after({}).may_end);
}

TEST(TimesConstraint, TextFollowsTheFirstTime) {
  EXPECT_THAT(after({7}).ids, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(after({7}).may_end);
}

TEST(TimesConstraint, TimesAfterTextAreLater) {
  EXPECT_THAT(after({7, 0}).ids, ElementsAre(0, 1, 2, 3, 4, 8, 9, 10, 11));
}

TEST(TimesConstraint, ATimeAfterTextIsFollowedByOneThatMayEqualItOrTheEnd) {
  EXPECT_THAT(after({7, 0, 9}).ids, ElementsAre(2, 3, 4, 9, 10, 11));
  EXPECT_TRUE(after({7, 0, 9}).may_end);
  EXPECT_THAT(after({7, 0, 9, 9}).ids, ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(after({7, 0, 9, 9, 1}).ids, ElementsAre(0, 1, 2, 3, 4, 10, 11));
}

TEST(LanguageConstraint, AllowsOneTokenOfALanguage) {
  const auto constraint = server::language_constraint(tokens)->fork();
  const engine::TokenMask mask = constraint->next();
  for (int64_t id = 0; id < tokens.vocabulary; ++id) EXPECT_EQ(mask.allows(id), id == 3 || id == 4) << id;
  EXPECT_FALSE(mask.may_end);
  EXPECT_THROW(constraint->append(1), std::invalid_argument);
  EXPECT_TRUE(constraint->append(4));
}

}  // namespace
}  // namespace pm::test
