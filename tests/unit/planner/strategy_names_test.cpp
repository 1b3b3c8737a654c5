// SPDX-License-Identifier: Apache-2.0
// Tests strategy names of other engines.
#include "planner/strategy_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pm {
namespace {

using testing::HasSubstr;

TEST(Names, WithoutAMeaningForInferenceGetTheStrategyOfTheSamePurpose) {
  for (const char* name : {"ZeRO-1", "zero_2", "ZeRO 2", "sharded_ddp", "zero_dp_2"})
    EXPECT_THAT(advice_on(name), HasSubstr("whole copies are replicas, or Data")) << name;
  for (const char* name : {"DataParallel", "DDP", "DistributedDataParallel"})
    EXPECT_THAT(advice_on(name), HasSubstr("replicas, or Data")) << name;
  for (const char* name : {"FSDP", "ZeRO-3", "zero_dp_3"})
    EXPECT_THAT(advice_on(name), HasSubstr("which is Sharded here")) << name;
  EXPECT_THAT(advice_on("GPipe"), HasSubstr("use Pipeline"));
  EXPECT_THAT(advice_on("Megatron"), HasSubstr("use Tensor"));
  EXPECT_THAT(advice_on("cpu_offload"), HasSubstr("that is Offload here"));
}

TEST(Names, InOtherSpellingAreCorrectedAndUnknownOnesGetTheFive) {
  EXPECT_EQ(advice_on("tensor"), "\"tensor\": write Tensor");
  EXPECT_EQ(advice_on("Magic"), "\"Magic\" is no strategy; expected Tensor, Pipeline, Data, Sharded or Offload");
}

}  // namespace
}  // namespace pm
