// SPDX-License-Identifier: Apache-2.0
// Tests the events that wait between the engine and a slow reader.
#include "worker/server/generation/generation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/api_test_server.h"

namespace pm::test {
namespace {

using server::Generation;
using std::chrono::milliseconds;

engine::Request request_of(const std::string& id, int64_t tokens, engine::SearchParams search = {}) {
  return {.id = id, .prompt = {'a', 'b'}, .max_new_tokens = tokens, .search = search};
}

TEST(Generation, WaitingTokensAreMergedIntoOneEventPerSequence) {
  FakeEngine engine;
  engine.hold(true);
  Generation generation(engine, {request_of("r", 6, {.num_return_sequences = 2})});
  engine.hold(false);
  ASSERT_TRUE(eventually([&] { return engine.open() == 0; }));
  const auto arrivals = generation.wait(milliseconds(1000));
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[0].event.tokens.size(), 6u);
  EXPECT_EQ(arrivals[0].event.finish, engine::Finish::Length);
  EXPECT_GE(arrivals[0].event.queued_seconds, 0) << "the values of the first event remain";
  EXPECT_EQ(arrivals[1].event.sequence, 1);
  EXPECT_TRUE(generation.done());
}

TEST(Generation, TokensBeyondTheLimitAreDroppedAndReported) {
  FakeEngine engine;
  Generation generation(engine, {request_of("r", 2000)}, 100);
  ASSERT_TRUE(eventually([&] { return engine.open() == 0; }));
  EXPECT_TRUE(generation.overflowed());
  size_t tokens = 0;
  for (const auto& arrival : generation.wait(milliseconds(10))) tokens += arrival.event.tokens.size();
  EXPECT_LE(tokens, 100u);
  EXPECT_TRUE(generation.done()) << "the end of the request is still delivered";
}

TEST(Generation, AlternativesCountTowardsTheLimit) {
  FakeEngine engine;
  auto request = request_of("r", 50);
  request.logprobs = 20;
  Generation generation(engine, {std::move(request)}, 500);
  ASSERT_TRUE(eventually([&] { return engine.open() == 0; }));
  EXPECT_TRUE(generation.overflowed());
}

TEST(Generation, ARequestEndsWhenAllOfItsSequencesHave) {
  // sequence 1 ends with its second token, sequence 0 with its third
  FakeEngine engine([](const engine::Request&, int64_t step) { return step == 2 ? end_id : 'x'; });
  engine.hold(true);
  auto request = request_of("r", 9, {.num_return_sequences = 2});
  request.eos = {end_id};
  Generation generation(engine, {std::move(request)});
  ASSERT_TRUE(eventually([&] { return engine.open() == 1; }));
  engine.allow(2);
  ASSERT_TRUE(eventually([&] { return engine.statistics().generation_tokens == 4; }));
  EXPECT_EQ(generation.wait(milliseconds(1000)).size(), 2u);
  EXPECT_FALSE(generation.done());
  engine.hold(false);
  EXPECT_TRUE(eventually([&] {
    generation.wait(milliseconds(1));
    return generation.done();
  }));
}

TEST(Generation, TheDestructorCancelsRunningRequests) {
  FakeEngine engine;
  engine.hold(true);
  {
    Generation generation(engine, {request_of("a", 9, {.num_return_sequences = 3}), request_of("b", 9)});
    EXPECT_EQ(engine.open(), 2u);
  }
  EXPECT_EQ(engine.open(), 0u);
  EXPECT_THAT(engine.cancelled(), testing::ElementsAre("a", "b"));
}

}  // namespace
}  // namespace pm::test
