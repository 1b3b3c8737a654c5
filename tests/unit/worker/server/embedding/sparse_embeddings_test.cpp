// SPDX-License-Identifier: Apache-2.0
// Tests POST /embed_sparse over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

server::Capabilities splade(server::SpladePooling pooling) {
  auto can = capabilities_of("fill-mask");
  can.sparse = {"logits", pooling, {}, {}};
  return can;
}

/// Scores of a vocabulary of three: the id of each token less that of "sat", -1 and 1.
Arrays scores(const engine::ForwardRequest& request) {
  return {{"logits", per_token(request, 3, [](int64_t id, int64_t i) {
             return i == 0 ? static_cast<float>(id - sat_id) : i == 1 ? -1.f : 1.f;
           })}};
}

TEST(SparseEmbeddings, SpladeTakesTheGreatestOrTheSumOfTheVocabulary) {
  TaskTestServer most(splade({}));
  most.engine.answer_forward(scores);
  const json one = most.ask("/embed_sparse", {{"inputs", "dog sat"}});
  ASSERT_EQ(one.size(), 1u);
  ASSERT_EQ(one[0].size(), 2u) << "scores that are not above 0 have no weight";
  EXPECT_EQ(one[0][0]["index"], 0);
  EXPECT_NEAR(one[0][0]["value"].get<double>(), std::log1p(dog_id - sat_id), 1e-6);
  EXPECT_EQ(one[0][1]["index"], 2);
  EXPECT_NEAR(one[0][1]["value"].get<double>(), std::log(2), 1e-6);

  TaskTestServer sums(splade({true, true}));
  sums.engine.answer_forward(scores);
  const json two = sums.ask("/embed_sparse", {{"inputs", {"dog sat", "cat"}}});
  ASSERT_EQ(two.size(), 2u);
  EXPECT_NEAR(two[0][1]["value"].get<double>(), 4 * std::log1p(std::log(2)), 1e-6) << "[CLS] dog sat [SEP]";
  EXPECT_NEAR(two[1].back()["value"].get<double>(), 3 * std::log1p(std::log(2)), 1e-6);
  EXPECT_EQ(sums.engine.forward_requests().size(), 2u) << "one pass per text bounds the memory of scores";
}

TEST(SparseEmbeddings, AHeadWeighsTheTokensOfTheText) {
  auto can = embedding_capabilities();
  can.sparse = {"last_hidden_state", {}, server::TokenWeights{{2, -1}, 0.5f}, {}};
  TaskTestServer tasked(can);
  tasked.engine.answer_forward([](const engine::ForwardRequest& request) -> Arrays {
    return {{"last_hidden_state", per_token(request, 2, [](int64_t id, int64_t i) {
               return i == 0 ? static_cast<float>(id) : id == sat_id ? 1000.f : 0.f;
             })}};
  });
  const json one = tasked.ask("/embed_sparse", {{"inputs", "dog sat dog"}})[0];
  ASSERT_EQ(one.size(), 1u) << "neither special tokens nor weights below 0";
  EXPECT_EQ(one[0]["index"], dog_id);
  EXPECT_NEAR(one[0]["value"].get<double>(), 2 * dog_id + 0.5, 1e-4);
}

TEST(SparseEmbeddings, AreRefusedWithTheReasonOrHaveNoRoute) {
  auto can = capabilities_of("fill-mask");
  can.sparse.refusal = "modules.json has the module Router before SpladePooling, which is not supported";
  TaskTestServer tasked(can);
  EXPECT_THAT(error_of(tasked.post("/embed_sparse", {{"inputs", "dog"}}), 400).value("message", ""),
              HasSubstr("Router"));
  TaskTestServer without(embedding_capabilities());
  EXPECT_EQ(without.post("/embed_sparse", {{"inputs", "dog"}})->status, 404);
}

}  // namespace
}  // namespace pm::test
