// SPDX-License-Identifier: Apache-2.0
// Tests pipeline stages: each layer once, nearly equal bytes, shared storage in every stage that reads it.
#include "planner/stages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "models.h"
#include "planner/memory.h"

namespace pm {
namespace {

using testing::HasSubstr;

std::vector<ModelMetadata> split_into_stages(const ModelMetadata& metadata, int p, int tensor = 1) {
  std::vector<ModelMetadata> out;
  for (const Layers& layers : stages(metadata, p, tensor, metadata.dtype))
    out.push_back(stage_metadata(metadata, layers));
  return out;
}

int64_t bytes_of(const ModelMetadata& metadata) {
  return make_partition(metadata, 1, metadata.dtype).weight_bytes(metadata, 0);
}

std::vector<int64_t> layers_of(const ModelMetadata& metadata, int p) {
  std::vector<int64_t> out;
  for (const Layers& layers : stages(metadata, p, 1, metadata.dtype)) {
    int64_t sum = 0;
    for (const auto& [stack, range] : layers) sum += range.size();
    out.push_back(sum);
  }
  return out;
}

const Part* part_of(const ModelMetadata& metadata, Axis axis, int64_t units) {
  const auto found = std::find_if(metadata.parts.begin(), metadata.parts.end(),
                                  [&](const Part& part) { return part.axis == axis && part.units == units; });
  return found == metadata.parts.end() ? nullptr : &*found;
}

std::string refusal(const ModelMetadata& metadata, int p) {
  try {
    stages(metadata, p, 1, metadata.dtype);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return "accepted";
}

/// Returns the largest stage of the best split, by trying all splits.
int64_t best_by_search(const ModelMetadata& metadata, int p, int begin = 0) {
  const int layers = metadata.stacks[0].layers;
  const auto bytes = [&](int end) {
    return bytes_of(stage_metadata(metadata, {{metadata.stacks[0].name, {begin, end}}}));
  };
  if (p == 1) return bytes(layers);
  int64_t best = std::numeric_limits<int64_t>::max();
  for (int end = begin + 1; end <= layers - (p - 1); ++end)
    best = std::min(best, std::max(bytes(end), best_by_search(metadata, p - 1, end)));
  return best;
}

TEST(Stages, OneStageIsTheWholeModel) {
  const ModelMetadata metadata = test::encoder_decoder(3, 2);
  EXPECT_EQ(stages(metadata, 1, 1, DType::F32), (std::vector<Layers>{{{"encoder", {0, 3}}, {"decoder", {0, 2}}}}));
  EXPECT_EQ(stage_metadata(metadata, all_layers(metadata)), metadata);
}

TEST(Stages, CountTheTablesOfTheEnds) {
  // the table weighs as much as 5.4 layers and stands at both ends: the middle stages take more layers
  EXPECT_EQ(layers_of(test::decoder({}), 4), (std::vector<int64_t>{1, 5, 5, 1}));
  EXPECT_EQ(layers_of(test::decoder({.vocab = 64}), 4), (std::vector<int64_t>{3, 3, 3, 3}));
}

TEST(Stages, SpreadWhatDoesNotDivide) {
  const auto layers = layers_of(test::decoder({.layers = 12, .vocab = 64, .positions = 0}), 5);
  EXPECT_EQ(std::accumulate(layers.begin(), layers.end(), int64_t{0}), 12);
  for (const int64_t count : layers) EXPECT_TRUE(count == 2 || count == 3) << count;
}

TEST(Stages, RunTheEncoderBeforeTheDecoderAndMayCutInEither) {
  const ModelMetadata metadata = test::encoder_decoder(6, 2, 512, 8, 64);
  EXPECT_EQ(stages(metadata, 2, 1, DType::F32)[0], (Layers{{"encoder", {0, 4}}, {"decoder", {0, 0}}}));
  EXPECT_EQ(stages(metadata, 2, 1, DType::F32)[1], (Layers{{"encoder", {4, 6}}, {"decoder", {0, 2}}}));
}

TEST(Stages, HoldATiedTableAtBothEndsAndNowhereElse) {
  const std::vector<ModelMetadata> parts = split_into_stages(test::gpt_neo_2_7b(), 4);
  for (size_t stage = 0; stage < 4; ++stage)
    EXPECT_EQ(part_of(parts[stage], Axis::Vocab, 50257) != nullptr, stage == 0 || stage == 3) << stage;
  EXPECT_EQ(part_of(parts[0], Axis::Vocab, 50257)->stack, "decoder");
  EXPECT_TRUE(part_of(parts[0], Axis::Vocab, 50257)->also.empty());
  EXPECT_EQ(part_of(parts[3], Axis::Vocab, 50257)->stack, "");
  EXPECT_EQ(part_of(parts[1], Axis::Positions, 2048), nullptr);
  EXPECT_EQ(parts[1].stacks[0].vocab, 0);  // no logits are computed there
  EXPECT_EQ(parts[3].stacks[0].vocab, 50257);
}

TEST(Stages, GiveASharedTableToTheStageOfEachStackThatReadsIt) {
  const ModelMetadata metadata = test::encoder_decoder(6, 4, 512, 8, 64);
  const std::vector<ModelMetadata> two = split_into_stages(metadata, 2);
  ASSERT_EQ(two[1].stacks.size(), 1u);
  EXPECT_EQ(two[1].stacks[0].name, "decoder");
  EXPECT_EQ(part_of(two[1], Axis::Vocab, 64)->stack, "decoder");
  EXPECT_EQ(part_of(two[1], Axis::Vocab, 64)->also, (std::vector<Use>{{"", stack_input}}));
  EXPECT_EQ(make_partition(two[1], 3, DType::F32).range("", Axis::Vocab, 64, 2).end, 64);
  EXPECT_EQ(kv_bytes_per_token(two[0], make_partition(two[0], 1, DType::F32), 0, DType::F32), 0);
  EXPECT_EQ(kv_bytes_per_token(two[1], make_partition(two[1], 1, DType::F32), 0, DType::F32), 2 * 4 * 512 * 4);
  // both, and the relative position biases of both, are there once: the rest is split
  EXPECT_EQ(bytes_of(two[0]) + bytes_of(two[1]), metadata.checkpoint_bytes + 64 * 512 * 4);
}

TEST(Stages, GiveSharedLayersToEachStageThatRunsThem) {
  const ModelMetadata metadata = test::repeating_encoder(12, 1);
  const std::vector<ModelMetadata> parts = split_into_stages(metadata, 3);
  const int64_t layer = 12 * int64_t{768} * 768 * 4;
  for (const ModelMetadata& stage : parts) EXPECT_GE(bytes_of(stage), layer);
  EXPECT_EQ(bytes_of(parts[1]), layer);
  const Part* ffn = part_of(parts[1], Axis::Ffn, 3072);
  const int first = ffn->first, held = parts[1].stacks[0].layers;
  EXPECT_GT(first, 0);
  EXPECT_EQ(ffn->also, held > 1 ? std::vector<Use>({{"encoder", first + 1, held - 1}}) : std::vector<Use>{});
}

TEST(Stages, KeepACopyOfKeysThatTheirLayersReuse) {
  ModelMetadata metadata = test::decoder({.layers = 8});
  metadata.stacks[0].layouts = {{12, 6, 128, {{1, 2, 2}}}};                // 1, 3
  metadata.stacks[0].reuses = {{2, 0, {{4, 2, 2}}}, {3, 1, {{5, 2, 2}}}};  // 4 and 6 read 2; 5 and 7 read 3
  const StackMetadata first = stage_metadata(metadata, {{"decoder", {0, 5}}}).stacks[0],
                      second = stage_metadata(metadata, {{"decoder", {5, 8}}}).stacks[0];
  EXPECT_EQ(first.reuses, (std::vector<KeyReuse>{{2, 0, {{4, 1, 1}}}}));
  EXPECT_EQ(cached_layers(first, 0), 2);
  EXPECT_EQ(cached_layers(first, 1), 2);
  EXPECT_EQ(second.reuses, (std::vector<KeyReuse>{{5, 1, {{7, 1, 2}}}}));
  EXPECT_EQ(cached_layers(second, 0), 1);  // a copy of layer 2's for layer 6
  EXPECT_EQ(cached_layers(second, 1), 1);  // a copy of layer 3's for layers 5 and 7
}

TEST(Stages, ShareOutTheRunsOfSharedLayersThoughTheyWeighNothingMore) {
  EXPECT_EQ(layers_of(test::repeating_encoder(12, 1), 3), (std::vector<int64_t>{4, 4, 4}));
}

TEST(Stages, FollowLayersThatTakeTurns) {
  ModelMetadata metadata =
      test::repeating_encoder(8, 1);  // layers 1, 4, 7 read the storage of layer 1; layer 0 stands alone
  metadata.parts = {{"encoder", 1, 1, Axis::Ffn, 3072, 10, DType::F32, false, {{"encoder", 4, 2, 3}}},
                    {"encoder", 0, 8, Axis::None, 1, 5, DType::F32, false}};
  const ModelMetadata middle = stage_metadata(metadata, {{"encoder", {3, 6}}}),
                      end = stage_metadata(metadata, {{"encoder", {2, 8}}});
  EXPECT_EQ(middle.parts[0], (Part{"encoder", 4, 1, Axis::Ffn, 3072, 10, DType::F32, false}));
  EXPECT_EQ(middle.parts[1], (Part{"encoder", 3, 3, Axis::None, 1, 5, DType::F32, false}));
  EXPECT_EQ(end.parts[0], (Part{"encoder", 4, 1, Axis::Ffn, 3072, 10, DType::F32, false, {{"encoder", 7}}}));
  EXPECT_EQ(stage_metadata(metadata, {{"encoder", {2, 4}}}).parts.size(), 1u);
}

TEST(Stages, AreRefusedWithBothNumbersWhenLayersAreTooFew) {
  EXPECT_EQ(refusal(test::decoder({}), 13), "GPT2LMHeadModel has 12 layers, too few for 13 stages; use at most 12");
  EXPECT_EQ(refusal(test::encoder_decoder(2, 3), 5), "accepted");
  EXPECT_THAT(refusal(test::decoder({}), 0), HasSubstr("0 stages"));
}

TEST(Stages, OfOtherMetadataAreRefused) {
  const ModelMetadata metadata = test::encoder_decoder(2, 2);
  for (const Layers& wrong : {Layers{{"encoder", {0, 2}}}, Layers{{"decoder", {0, 2}}, {"encoder", {0, 2}}},
                              Layers{{"encoder", {0, 3}}, {"decoder", {0, 2}}}}) {
    EXPECT_THROW(stage_metadata(metadata, wrong), std::invalid_argument);
  }
}

class AnyStages : public testing::TestWithParam<int> {};

TEST_P(AnyStages, HoldEachLayerOnceAndNoCutIsBetter) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  const int layers = pick(2, 9), p = pick(2, std::min(layers, 4));
  SCOPED_TRACE("seed " + std::to_string(GetParam()) + ", " + std::to_string(layers) + " layers, " + std::to_string(p) +
               " stages");
  ModelMetadata metadata = pick(0, 1) ? test::decoder({.layers = layers,
                                                       .hidden = 64,
                                                       .heads = 4,
                                                       .kv_heads = 4,
                                                       .head_dim = 16,
                                                       .ffn = 256,
                                                       .vocab = pick(1, 4000)})
                                      : test::repeating_encoder(layers, pick(1, layers), 48, 4);
  for (int extra = pick(0, 4); extra > 0; --extra)
    metadata.parts.push_back(
        {metadata.stacks[0].name, pick(0, layers - 1), 1, Axis::None, 1, pick(1, 200000), DType::F32, false});
  const std::vector<Layers> cut = stages(metadata, p, 1, metadata.dtype);
  ASSERT_EQ(cut.size(), static_cast<size_t>(p));
  int64_t end = 0, most = 0;
  for (const Layers& stage : cut) {
    EXPECT_EQ(stage[0].second.begin, end);
    EXPECT_GE(stage[0].second.size(), 1);
    end = stage[0].second.end;
    const ModelMetadata held = stage_metadata(metadata, stage);
    most = std::max(most, bytes_of(held));
    EXPECT_EQ(held.checkpoint_bytes, bytes_of(held));
    EXPECT_EQ(stage_metadata(metadata, stage), held);
  }
  EXPECT_EQ(end, layers);
  EXPECT_EQ(most, best_by_search(metadata, p));
}

INSTANTIATE_TEST_SUITE_P(Seeds, AnyStages, testing::Range(1, 200));

}  // namespace
}  // namespace pm
