// SPDX-License-Identifier: Apache-2.0
// Tests that step messages and outputs survive encoding and that damaged bytes are refused.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/engine/protocol/step_message.h"
#include "worker/engine/protocol/step_output.h"

namespace pm::engine {
namespace {

StepMessage example() {
  StepMessage message;
  message.step = 1'000'000'007;
  message.bucket = 24;
  message.freed_slots = {3, 4};
  message.block_copies = {5, 6, 7, 8};
  message.state_copies = {3, 2, 3, 1};
  message.entries.push_back({7, true, 32, {5, 6}, true, 2, {1, 2, 3}, {11, 12}, {4}, 2, OutputKind::Logits});
  message.entries.push_back({});
  message.entries.push_back(
      {.slot = 1,
       .tokens = {4},
       .source_blocks = {9},
       .source_tokens = 5,
       .source_inputs = {{"pixel_values", {{1, 3, 1, 2}, std::vector<float>{1, 2, 3, 4, 5, 6}}}}});
  message.entries.push_back(
      {.slot = 2,
       .tokens = {9},
       .output_kind = OutputKind::Sampled,
       .device_sampling = {{0.5, 0.9, 0.1, 40, 7, 1, 33, true}, 3, {{4, 1.5f, 0.25f}, {210, 1, INFINITY}}}});
  message.entries.push_back({.slot = 3, .tokens = {9, 8, 7}, .output_kind = OutputKind::Argmax, .drafts = 2});
  message.entries.push_back({.slot = 4,
                             .tokens = {9, 8, 7},
                             .output_kind = OutputKind::Sampled,
                             .device_sampling = {{.temperature = 2, .position = 8}, 1, {}},
                             .drafts = 2,
                             .draft_sampling = {{{.temperature = 2, .position = 9}, 1, {{5, 2, 0.5f}}},
                                                {{.temperature = 2, .position = 10}, 1, {}}}});
  message.entries.push_back(
      {.slot = 5, .tokens = {9, 8, 7}, .scored = {8, 7}, .scored_best = 4, .adapter = 6, .states = true});
  message.adapter_loads = {{2, {{"layer.a", {{1, 2}, std::vector<float>{1, 2}}}}}, {3, {}}};
  message.forward = ForwardJob{
      {{{"input_ids", {{2, 3}, std::vector<int64_t>(6)}}, {"pixel_values", {{1, 3, 2, 2}, std::vector<float>(12)}}},
       {{"input_ids", {{1, 1}, std::vector<int64_t>(1)}}}},
      true,
      false,
      {"logits", "pooler_output"},
      7};
  return message;
}

TEST(StepMessage, DecodesToWhatWasEncoded) { EXPECT_EQ(decode(encode(example())), example()); }

TEST(StepMessage, RefusesEveryTruncation) {
  const std::vector<uint8_t> bytes = encode(example());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(decode({bytes.data(), length}), std::invalid_argument) << length;
  }
}

TEST(StepMessage, RefusesArraysWhoseValuesDoNotFillTheirShape) {
  for (const std::vector<int64_t>& shape :
       {std::vector<int64_t>{2, 2}, {int64_t{1} << 39, int64_t{1} << 39}, {-1, -3}}) {
    StepMessage message;
    message.forward = ForwardJob{{{{"input_ids", {shape, std::vector<int64_t>{1, 2, 3}}}}}, false, false, {}};
    EXPECT_THROW(decode(encode(message)), std::invalid_argument);
  }
}

TEST(StepMessage, RefusesMoreScoredTokensThanRows) {
  StepMessage message;
  message.entries.push_back({.tokens = {9}, .scored = {8, 7}});
  EXPECT_THROW(decode(encode(message)), std::invalid_argument);
}

TEST(StepMessage, RefusesDraftsThatNoTokenStandsBeforeOrNobodySamples) {
  for (const auto& [drafts, kind] : {std::pair{2, OutputKind::Argmax},
                                     {3, OutputKind::Argmax},
                                     {-1, OutputKind::Logits},
                                     {1 << 30, OutputKind::Sampled},
                                     {1, OutputKind::None}}) {
    StepMessage message;
    message.entries.push_back({.tokens = {9, 8}, .output_kind = kind, .drafts = drafts});
    EXPECT_THROW(decode(encode(message)), std::invalid_argument) << drafts;
  }
}

TEST(Sample, KeepsDraftsUpToTheFirstThatIsNotSampled) {
  StepMessage message;
  message.entries.push_back({.tokens = {1, 5, 6, 7}, .output_kind = OutputKind::Argmax, .drafts = 3});
  message.entries.push_back({.tokens = {2}, .output_kind = OutputKind::Argmax});
  message.entries.push_back({.tokens = {3, 5, 6},
                             .output_kind = OutputKind::Sampled,
                             .device_sampling = {},
                             .drafts = 2,
                             .draft_sampling = {{}, {}}});
  const auto ids = [](const SamplerOutput& one) {
    std::vector<int32_t> found;
    for (const Token& token : one.tokens) found.push_back(token.id);
    return found;
  };
  StepOutput output;
  output.argmax = at::tensor({5, 6, 9, 4, 8}, at::kLong);
  output.sampled = at::tensor({5, 6, 3}, at::kLong);
  const std::vector<SamplerOutput> sampled = sample(message, {}, output);
  ASSERT_EQ(sampled.size(), 3);
  EXPECT_EQ(ids(sampled[0]), (std::vector<int32_t>{5, 6, 9}));
  EXPECT_EQ(ids(sampled[1]), (std::vector<int32_t>{8}));
  EXPECT_EQ(ids(sampled[2]), (std::vector<int32_t>{5, 6, 3})) << "all, and the token behind them";
  output.argmax = at::tensor({4, 6, 9, 4, 8}, at::kLong);
  EXPECT_EQ(ids(sample(message, {}, output)[0]), (std::vector<int32_t>{4})) << "none";
  output.argmax = at::tensor({4, 6, 9, 8}, at::kLong);
  EXPECT_THROW(sample(message, {}, output), std::logic_error) << "a row is missing";
}

TEST(StepOutput, DecodesToWhatWasEncoded) {
  StepOutput output;
  output.argmax = at::tensor({7, 50'000}, at::kLong);
  output.sampled = at::tensor({1, 2, 3}, at::kLong);
  output.logits = at::rand({3, 5});
  output.prompt_tokens = {{{4, -1.5f, {{7, -0.5f}, {4, -1.5f}}}, 2}, {{8, -0.25f, {}}, 1}};
  output.states = at::rand({4, 6});
  output.outputs = {{{"logits", {{1, 2}, std::vector<float>{0.5f, -1.f}}}}, {}};
  const StepOutput back = decode_output(encode(output));
  EXPECT_TRUE(at::equal(back.argmax, output.argmax));
  EXPECT_TRUE(at::equal(back.sampled, output.sampled));
  EXPECT_TRUE(at::equal(back.logits, output.logits));
  EXPECT_TRUE(at::equal(back.states, output.states));
  EXPECT_EQ(back.prompt_tokens, output.prompt_tokens);
  EXPECT_EQ(back.outputs, output.outputs);
  const StepOutput empty = decode_output(encode(StepOutput{}));
  EXPECT_FALSE(empty.argmax.defined() || empty.sampled.defined() || empty.logits.defined() || empty.states.defined());
}

TEST(StepOutput, RefusesEveryTruncation) {
  StepOutput output;
  output.argmax = at::tensor({7}, at::kLong);
  output.logits = at::rand({2, 3});
  output.states = at::rand({1, 2});
  output.prompt_tokens = {{{4, -1.5f, {{7, -0.5f}}}, 2}};
  const std::vector<uint8_t> bytes = encode(output);
  for (size_t length = 0; length < bytes.size(); ++length)
    EXPECT_THROW(decode_output({bytes.data(), length}), std::invalid_argument) << length;
}

TEST(StepMessage, RefusesBytesAfterItsEnd) {
  std::vector<uint8_t> bytes = encode(example());
  bytes.push_back(0);
  EXPECT_THROW(decode(bytes), std::invalid_argument);
}

}  // namespace
}  // namespace pm::engine
