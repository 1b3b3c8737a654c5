// SPDX-License-Identifier: Apache-2.0
// Tests images among the tokens of prompts: their rows in steps, the prefixes that they share, and their passes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/base/error.h"
#include "worker/engine/scheduling/batcher.h"
#include "worker/engine/scheduling/forward_queue.h"

namespace pm::engine {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr Limits limits{.vocabulary = 100,
                        .positions = 512,
                        .kv_blocks = 64,
                        .max_concurrency = 8,
                        .step_tokens = 10,
                        .image_width = 2,
                        .image_tokens = 5};

/// An image of four tokens, whose rows are numbers from `value` on.
PromptImage image_at(int64_t first, int32_t key, float value) {
  std::vector<float> rows;
  for (int i = 0; i < 8; ++i) rows.push_back(value + static_cast<float>(i));
  return {.first = first, .tokens = 4, .key = key, .rows = std::make_shared<const std::vector<float>>(std::move(rows))};
}

Request request_of(std::vector<PromptImage> images, int64_t tokens = 40) {
  Request request{.id = "r", .max_new_tokens = 1};
  request.prompt.assign(static_cast<size_t>(tokens), 7);
  request.images = std::move(images);
  return request;
}

/// Runs a request to its end and returns the entries of its steps.
std::vector<StepEntry> run(Batcher& batcher, Request request) {
  batcher.enqueue(batcher.make(std::move(request), [](const Event&) {}, {}));
  std::vector<StepEntry> entries;
  while (!batcher.idle()) {
    std::vector<SamplingInput> inputs;
    Outbox outbox;
    StepMessage message = batcher.plan({}, inputs, outbox);
    EXPECT_EQ(message.entries.size(), 1u);
    SamplerOutput output;
    if (message.entries[0].output_kind != OutputKind::None) output.tokens = {Token{.id = 5}};
    entries.push_back(decode(encode(message)).entries.at(0));
    batcher.apply({output}, {}, outbox);
  }
  return entries;
}

std::string refusal(Request request, const Limits& of = limits) {
  try {
    Batcher(of).make(std::move(request), {}, {});
  } catch (const Error& error) {
    return error.what();
  }
  return "taken";
}

TEST(PromptImages, EachChunkHasTheRowsOfItsTokens) {
  Batcher batcher(limits);
  const std::vector<StepEntry> entries = run(batcher, request_of({image_at(1, -2, 0), image_at(8, -3, 100)}, 22));
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_THAT(entries[0].image_places, ElementsAre(1, 2, 3, 4, 8, 9));
  EXPECT_THAT(entries[0].image_rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 100, 101, 102, 103));
  EXPECT_THAT(entries[1].image_places, ElementsAre(0, 1));
  EXPECT_THAT(entries[1].image_rows, ElementsAre(104, 105, 106, 107));
  EXPECT_THAT(entries[2].image_places, IsEmpty());
}

/// Every token's positions along all axes, as a rank finds them.
std::vector<std::vector<int64_t>> positions_of(const std::vector<StepEntry>& entries) {
  std::vector<std::vector<int64_t>> all;
  for (const StepEntry& entry : entries) {
    for (size_t i = 0; i < entry.tokens.size(); ++i) {
      const int64_t usual = entry.context + entry.position_shift + static_cast<int64_t>(i);
      all.push_back({usual, usual, usual});
      if (!entry.axes.empty()) all.back().assign(entry.axes.begin() + 3 * i, entry.axes.begin() + 3 * i + 3);
    }
  }
  return all;
}

TEST(PromptImages, TokensOfImagesOfAnySizeStandAtRowsAndColumnsInEveryChunking) {
  PromptImage tall = image_at(2, -2, 0), wide = image_at(7, -3, 0);
  tall.down = 4, tall.across = 1;
  wide.down = wide.across = 2;
  std::vector<std::vector<int64_t>> expected{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 3, 2}, {2, 4, 2}, {2, 5, 2},
                                             {6, 6, 6}, {7, 7, 7}, {7, 7, 8}, {7, 8, 7}, {7, 8, 8}};
  for (int64_t text = 9; text < 21; ++text) expected.push_back({text, text, text});
  for (const int64_t step : {1, 2, 3, 5, 7, 10, 64}) {
    Limits own = limits;
    own.step_tokens = step;
    Batcher batcher(own);
    Request request = request_of({tall, wide}, 22);
    request.max_new_tokens = 2;
    const std::vector<StepEntry> entries = run(batcher, std::move(request));
    EXPECT_EQ(positions_of(entries), expected) << "steps of " << step << " tokens";
    EXPECT_THAT(entries.back().axes, IsEmpty()) << "one position says where a token of a text stands";
  }
}

TEST(PromptImages, PartsOfAnImageHaveTheRowsFromTheirFirstOneOn) {
  PromptImage upper = image_at(1, -2, 0), lower = image_at(4, -2, 0);
  lower.rows = upper.rows;
  upper.tokens = lower.tokens = lower.first_row = 2;
  Batcher batcher(limits);
  const std::vector<StepEntry> entries = run(batcher, request_of({upper, lower}, 8));
  EXPECT_THAT(entries.at(0).image_places, ElementsAre(1, 2, 4, 5));
  EXPECT_THAT(entries.at(0).image_rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  lower.first_row = 3;
  EXPECT_THAT(refusal(request_of({upper, lower})), testing::HasSubstr("expected 2 for each"));
}

TEST(PromptImages, RowsAndColumnsThatAreNotThoseOfTheTokensAreRefused) {
  for (const auto& [down, across] : std::vector<std::pair<int64_t, int64_t>>{{2, 1}, {0, 4}, {-2, -2}, {4, 0}}) {
    PromptImage image = image_at(0, -2, 0);
    image.down = down, image.across = across;
    EXPECT_THAT(refusal(request_of({image})), testing::HasSubstr("an image of 4 tokens has"));
  }
}

TEST(PromptImages, MessagesWithPositionsOfSomeTokensAreRefused) {
  StepMessage message;
  message.entries.push_back({.tokens = {1, 2}, .axes = {0, 0, 0, 1, 1, 1}});
  EXPECT_EQ(decode(encode(message)), message);
  message.entries[0].axes.pop_back();
  EXPECT_THROW(decode(encode(message)), std::invalid_argument);
}

TEST(PromptImages, PromptsShareBlocksWhereTheirImagesAreTheSame) {
  Batcher batcher(limits);
  EXPECT_EQ(run(batcher, request_of({image_at(20, -2, 0)}))[0].context, 0);
  EXPECT_EQ(run(batcher, request_of({image_at(20, -2, 0)}))[0].context, 32);
  EXPECT_EQ(run(batcher, request_of({image_at(20, -3, 1)}))[0].context, 16) << "up to the block of the image";
  EXPECT_EQ(run(batcher, request_of({}))[0].context, 16) << "tokens without an image are others";
}

TEST(PromptImages, ImagesThatDoNotFitThePromptAreRefused) {
  EXPECT_EQ(refusal(request_of({image_at(0, -2, 0), image_at(4, -3, 0), image_at(36, -4, 0)})), "taken");
  EXPECT_THAT(refusal(request_of({image_at(37, -2, 0)})), testing::HasSubstr("4 tokens from 37 on"));
  EXPECT_THAT(refusal(request_of({image_at(0, -2, 0), image_at(3, -3, 0)})), testing::HasSubstr("from 3 on"));
  EXPECT_THAT(refusal(request_of({image_at(0, 2, 0)})), testing::HasSubstr("8 numbers for 4 tokens"));
  PromptImage without = image_at(0, -2, 0);
  without.rows = nullptr;
  EXPECT_THAT(refusal(request_of({without})), testing::HasSubstr("0 numbers for 4 tokens"));
  Limits blind = limits;
  blind.image_width = 0;
  EXPECT_THAT(refusal(request_of({image_at(0, -2, 0)}), blind), testing::HasSubstr("reads none"));
}

TEST(PromptImages, NoChunkEndsInsideOfAnImageWhoseTokensSeeEachOther) {
  Limits bidirectional = limits;
  bidirectional.bidirectional_images = true;
  Batcher batcher(bidirectional);
  const std::vector<StepEntry> entries = run(batcher, request_of({image_at(8, -2, 0), image_at(12, -3, 9)}, 22));
  std::vector<size_t> tokens;
  for (const StepEntry& entry : entries) tokens.push_back(entry.tokens.size());
  EXPECT_THAT(tokens, ElementsAre(8, 10, 4));
  EXPECT_THAT(entries[0].bidirectional, IsEmpty());
  EXPECT_THAT(entries[1].bidirectional, ElementsAre(8, 12, 12, 16));
  EXPECT_THAT(entries[2].bidirectional, IsEmpty());
}

TEST(PromptImages, AnImageOfMoreTokensThanAStepRunsWhole) {
  Limits bidirectional = limits;
  bidirectional.bidirectional_images = true;
  bidirectional.step_tokens = 3;
  Batcher batcher(bidirectional);
  const std::vector<StepEntry> entries = run(batcher, request_of({image_at(1, -2, 0)}, 7));
  std::vector<size_t> tokens;
  for (const StepEntry& entry : entries) tokens.push_back(entry.tokens.size());
  EXPECT_THAT(tokens, ElementsAre(1, 4, 2));
}

TEST(PromptImages, ThePartOfAnImageBehindACachedPrefixSeesAllOfIt) {
  Limits bidirectional = limits;
  bidirectional.bidirectional_images = true;
  Batcher batcher(bidirectional);
  run(batcher, request_of({image_at(14, -2, 0)}));
  const std::vector<StepEntry> entries = run(batcher, request_of({image_at(14, -2, 0)}, 24));
  EXPECT_EQ(entries[0].context, 16);
  EXPECT_THAT(entries[0].bidirectional, ElementsAre(14, 18));
  EXPECT_THAT(entries[0].image_places, ElementsAre(0, 1));
}

TEST(PromptImages, MessagesWithRangesThatAreNotThereAreRefused) {
  StepMessage message;
  message.entries.push_back({.context = 4, .tokens = {1, 2, 3}, .bidirectional = {2, 5, 5, 7}});
  EXPECT_EQ(decode(encode(message)), message);
  for (const std::vector<int32_t>& ranges :
       std::vector<std::vector<int32_t>>{{2}, {2, 8}, {3, 3}, {5, 4}, {-1, 2}, {2, 5, 4, 6}}) {
    message.entries[0].bidirectional = ranges;
    EXPECT_THROW(decode(encode(message)), std::invalid_argument);
  }
}

TEST(PromptImages, MessagesWithPlacesThatAreNoTokensAreRefused) {
  StepMessage message;
  message.entries.push_back({.tokens = {1, 2, 3}, .image_places = {0, 2}, .image_rows = {1, 2, 3, 4}});
  EXPECT_EQ(decode(encode(message)), message);
  for (const auto& [places, rows] :
       std::vector<std::pair<std::vector<int32_t>, std::vector<float>>>{{{0, 3}, {1, 2}},
                                                                        {{-1, 2}, {1, 2}},
                                                                        {{2, 0}, {1, 2}},
                                                                        {{1, 1}, {1, 2}},
                                                                        {{0, 2}, {1, 2, 3}},
                                                                        {{0}, {}},
                                                                        {{}, {1}}}) {
    message.entries[0].image_places = places;
    message.entries[0].image_rows = rows;
    EXPECT_THROW(decode(encode(message)), std::invalid_argument);
  }
}

Arrays pixels(int64_t images) {
  return {{"pixel_values", {{images, 1}, std::vector<float>(static_cast<size_t>(images))}}};
}

/// `images` images of `patches` patches together.
Arrays patches(int64_t images, int64_t patches) {
  return {{"pixel_values", {{patches, 1}, std::vector<float>(static_cast<size_t>(patches))}},
          {"image_grid_thw", {{images, 3}, std::vector<int64_t>(static_cast<size_t>(3 * images))}}};
}

TEST(PromptImages, ImagesOfAnySizeOfARequestRunTogetherAndCostTheirPatches) {
  ForwardQueue queue(10, true, 1, 1, 0);
  int64_t tokens = 0;
  for (const char* id : {"a", "b", "c"})
    queue.add({.id = id, .inputs = patches(2, 8), .outputs = {"rows"}}, [](ForwardResult) {});
  queue.add({.id = "d", .inputs = patches(1, 40), .outputs = {"rows"}}, [](ForwardResult) {});
  for (int i = 0; i < 4; ++i) {  // two of 8 patches are more than a step, and one of 40 runs all the same
    const std::vector<ForwardPart> parts = queue.take(tokens);
    ASSERT_EQ(parts.size(), 1u);
    EXPECT_EQ(parts[0].rows, i < 3 ? 2 : 1);
  }
  EXPECT_EQ(tokens, 3 * 8 + 10);
  queue.add({.id = "e", .inputs = patches(1, 4), .outputs = {"rows"}}, [](ForwardResult) {});
  queue.add({.id = "f", .inputs = patches(1, 4), .outputs = {"rows"}}, [](ForwardResult) {});
  EXPECT_EQ(queue.take(tokens).size(), 2u);
}

TEST(PromptImages, APassHasAsManyImagesAsTokensFitAndNoneIsSplitFromItsText) {
  ForwardQueue queue(10, true, 1, 1, 5);
  int64_t tokens = 0;
  queue.add({.id = "a", .inputs = pixels(3), .outputs = {"rows"}}, [](ForwardResult) {});
  EXPECT_EQ(queue.take(tokens).at(0).rows, 2);
  EXPECT_EQ(queue.take(tokens).at(0).rows, 1);
  Arrays both = pixels(3);
  both["input_ids"] = {{2, 2}, std::vector<int64_t>(4)};
  queue.add({.id = "b", .inputs = both}, [](ForwardResult) {});
  queue.add({.id = "c", .inputs = both}, [](ForwardResult) {});
  const std::vector<ForwardPart> parts = queue.take(tokens);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].rows, 2);
  EXPECT_EQ(ForwardQueue::make_job(parts).inputs.at(0).at("pixel_values").shape, (std::vector<int64_t>{3, 1}));
}

}  // namespace
}  // namespace pm::engine
