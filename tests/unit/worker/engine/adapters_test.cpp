// SPDX-License-Identifier: Apache-2.0
// Tests what requests with adapters share with others: steps, but neither keys and values nor forward passes.
#include <gtest/gtest.h>

#include "worker/base/error.h"
#include "worker/engine/scheduling/batcher.h"
#include "worker/engine/scheduling/forward_queue.h"

namespace pm::engine {
namespace {

using AdapterPtr = std::shared_ptr<const Adapter>;

AdapterPtr adapter_of(int32_t slot, int64_t id) {
  return std::make_shared<const Adapter>(Adapter{"adapter" + std::to_string(id), "", slot, id});
}

constexpr Limits limits{.vocabulary = 100, .positions = 512, .kv_blocks = 64, .max_concurrency = 8};

Request request_of(AdapterPtr adapter, int32_t first = 1) {
  Request request{.id = "r", .max_new_tokens = 1};
  for (int32_t i = 0; i < 40; ++i) request.prompt.push_back(first + i);
  request.adapter = std::move(adapter);
  return request;
}

/// Runs a request to its end and returns its entry.
StepEntry run(Batcher& batcher, Request request) {
  batcher.enqueue(batcher.make(std::move(request), [](const Event&) {}, {}));
  std::vector<SamplingInput> inputs;
  Outbox outbox;
  const StepMessage message = batcher.plan({}, inputs, outbox);
  EXPECT_EQ(message.entries.size(), 1u);
  SamplerOutput output;
  output.tokens = {Token{.id = 5}};
  batcher.apply({output}, {}, outbox);
  EXPECT_TRUE(batcher.idle());
  return message.entries.at(0);
}

TEST(Adapters, AnEntryHasTheSlotOfItsRequest) {
  Batcher batcher(limits);
  EXPECT_EQ(run(batcher, request_of(nullptr)).adapter, 0);
  EXPECT_EQ(run(batcher, request_of(adapter_of(3, 7))).adapter, 3);
}

TEST(Adapters, EqualPromptsOfDifferentAdaptersShareNoBlocks) {
  Batcher batcher(limits);
  const AdapterPtr first = adapter_of(1, 1), second = adapter_of(2, 2);
  for (const AdapterPtr& adapter : {AdapterPtr(), first, second})
    EXPECT_EQ(run(batcher, request_of(adapter)).context, 0);
  for (const AdapterPtr& adapter : {AdapterPtr(), first, second})
    EXPECT_EQ(run(batcher, request_of(adapter)).context, 32) << "its own blocks are found";
}

TEST(Adapters, AnAdapterInTheSlotOfAnEarlierOneFindsNoneOfItsBlocks) {
  Batcher batcher(limits);
  run(batcher, request_of(adapter_of(1, 1)));
  EXPECT_EQ(run(batcher, request_of(adapter_of(1, 2))).context, 0);
}

TEST(Adapters, RootsOfPrefixesDifferForEachAdapterAndKindOfKeys) {
  std::set<BlockPool::PrefixNode> roots;
  for (int64_t adapter = 0; adapter < 5; ++adapter)
    for (const bool long_rope : {false, true}) roots.insert(BlockPool::root(adapter, long_rope));
  EXPECT_EQ(roots.size(), 10u);
  EXPECT_EQ(*roots.rbegin(), 0) << "nodes of blocks count from 1";
}

TEST(Adapters, OneStepHasRequestsOfSeveralAdapters) {
  Batcher batcher(limits);
  for (int32_t slot = 0; slot < 3; ++slot)
    batcher.enqueue(
        batcher.make(request_of(slot > 0 ? adapter_of(slot, slot) : nullptr, slot), [](const Event&) {}, {}));
  std::vector<SamplingInput> inputs;
  Outbox outbox;
  const StepMessage message = batcher.plan({}, inputs, outbox);
  ASSERT_EQ(message.entries.size(), 3u);
  for (int32_t slot = 0; slot < 3; ++slot) EXPECT_EQ(message.entries[static_cast<size_t>(slot)].adapter, slot);
}

TEST(Adapters, AModelThatReadsItsPromptByAnEncoderTakesNone) {
  Limits encoder = limits;
  encoder.decoder_start = 2;
  const Batcher batcher(encoder);
  EXPECT_THROW(batcher.make(request_of(adapter_of(1, 1)), {}, {}), Error);
  EXPECT_NO_THROW(batcher.make(request_of(nullptr), {}, {}));
}

TEST(Adapters, AForwardPassHasRequestsOfOneAdapter) {
  ForwardQueue queue(512, true, 1);
  const AdapterPtr first = adapter_of(1, 1), second = adapter_of(2, 2);
  for (const AdapterPtr& adapter : {first, second, first, AdapterPtr()}) {
    ForwardRequest request{.id = "f", .inputs = {{"input_ids", {{1, 2}, std::vector<int64_t>{1, 2}}}}};
    request.adapter = adapter;
    queue.add(std::move(request), [](ForwardResult) {});
  }
  std::vector<std::pair<int32_t, size_t>> jobs;  // slot and requests of each pass
  for (int64_t tokens = 0;;) {
    const std::vector<ForwardPart> parts = queue.take(tokens);
    if (parts.empty()) break;
    jobs.emplace_back(ForwardQueue::make_job(parts).adapter, parts.size());
  }
  EXPECT_EQ(jobs, (std::vector<std::pair<int32_t, size_t>>{{1, 2}, {2, 1}, {0, 1}}));
}

}  // namespace
}  // namespace pm::engine
