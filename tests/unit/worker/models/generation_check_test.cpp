// SPDX-License-Identifier: Apache-2.0
// What a model needs to generate, with and without a KV cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/models/model.h"

namespace pm::test {
namespace {

policy::Attention& self(policy::Model& model) { return model.stacks[0].layers[0].attention; }

TEST(Generation, AnEncoderMayGenerateWithoutACache) {
  policy::Model encoder = model({head("lm", policy::LogitsSpec{})});
  encoder.task = policy::Task::FillMask;
  encoder.recompute.emplace();
  EXPECT_EQ(refusal(encoder), "runs");
  EXPECT_TRUE(models::Model::generates(encoder));
  EXPECT_FALSE(models::Model::caches(encoder));
  policy::Model changed = encoder;
  changed.stacks.push_back(changed.stacks[0]);
  EXPECT_THAT(refusal(changed), testing::HasSubstr("generates without a KV cache beside further stacks"));
  changed = encoder;
  changed.stacks[0].input.features = features();
  EXPECT_THAT(refusal(changed), testing::HasSubstr("generates without a KV cache by rows"));
  changed = encoder;
  changed.heads.clear();
  EXPECT_THAT(refusal(changed), testing::HasSubstr("has no language-model head for its task"));
}

TEST(Generation, StepsThatOverlapNeedATarget) {
  policy::Model encoder = model({head("lm", policy::LogitsSpec{})});
  encoder.task = policy::Task::Forward;
  encoder.recompute.emplace().overlap = policy::Recompute::Overlap{0};
  EXPECT_THAT(refusal(encoder), testing::HasSubstr("steps that overlap without a target"));
  encoder.recompute->target = true;
  encoder.stacks[0].input.targets.emplace();
  encoder.stacks[0].input.position = policy::PositionKind::None;
  self(encoder).relative_content.emplace().content_to_position.emplace();
  EXPECT_EQ(refusal(encoder), "runs");
  encoder.recompute->overlap->memory = -1;
  EXPECT_THAT(refusal(encoder), testing::HasSubstr("a memory of -1 rows"));
}

TEST(Generation, AMemoryGeneratesWhereTokensSeeNoMoreThanIt) {
  for (const int64_t window : {0, 1, 5, 6}) {
    policy::Model model = test::model({head("words", policy::ClustersSpec{})});
    model.recompute.emplace();
    model.stacks[0].memory.emplace().length = 4;
    self(model) = {.mask = policy::Mask::Causal, .window = window};
    self(model).relative_content.emplace().content_to_position.emplace();
    if (window == 1 || window == 5)
      EXPECT_EQ(refusal(model), "runs") << window;
    else
      EXPECT_THAT(refusal(model), testing::HasSubstr("a memory of 4 rows and tokens that see more than it")) << window;
  }
}

TEST(Generation, AttentionInChunksGeneratesWhereTokensSeeNoneBehindThem) {
  policy::Model model = test::model({head("lm", policy::LogitsSpec{})});
  model.recompute.emplace();
  self(model).mask = policy::Mask::Causal;
  self(model).chunks.emplace().hashes.emplace().buckets = {4, 6};
  EXPECT_EQ(refusal(model), "runs");
  policy::Model changed = model;
  self(changed).chunks->after = 1;
  EXPECT_THAT(refusal(changed), testing::HasSubstr("in chunks whose tokens see those behind them"));
  changed = model;
  self(changed).mask = policy::Mask::Full;
  EXPECT_THAT(refusal(changed), testing::HasSubstr("in chunks whose tokens see those behind them"));
  changed = model;
  self(changed).chunks->hashes->buckets.clear();
  EXPECT_THAT(refusal(changed), testing::HasSubstr("by hashes whose number of buckets follows from the length"));
}

TEST(Generation, ADecoderWithALanguageModelHeadGenerates) {
  policy::Model decoder = model({head("lm", policy::LogitsSpec{})});
  decoder.task = policy::Task::Generate;
  self(decoder).mask = policy::Mask::Causal;
  self(decoder).window = 4;
  EXPECT_EQ(refusal(decoder), "runs");
  EXPECT_TRUE(models::Model::generates(decoder) && models::Model::caches(decoder));
  decoder.task = policy::Task::FillMask;
  EXPECT_FALSE(models::Model::generates(decoder));
}

}  // namespace
}  // namespace pm::test
