// SPDX-License-Identifier: Apache-2.0
// Tests POST /score over a real socket.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/server/support/task_test_server.h"

namespace pm::test {
namespace {

using testing::HasSubstr;

server::Capabilities cross_encoder() {
  auto can = capabilities_of("classify");
  can.labels = {"LABEL_0"};
  can.rank_activation = "Identity";
  return can;
}

/// The score of a row is its first id times 100 plus the first id of its second text.
Arrays score_pairs(const engine::ForwardRequest& request) {
  const auto& shape = request.inputs.at("input_ids").shape;
  const auto& ids = ids_of(request);
  std::vector<float> scores;
  for (int64_t r = 0; r < shape[0]; ++r) {
    const auto row = ids.begin() + r * shape[1];
    const auto second = std::find(row, row + shape[1], int64_t{separator_id}) + 1;
    scores.push_back(static_cast<float>(row[1] * 100 + *second));
  }
  return {{"logits", floats({shape[0], 1}, scores)}};
}

struct Score : testing::Test {
  Score() { tasked.engine.answer_forward(score_pairs); }
  std::vector<double> scores(const json& body) {
    std::vector<double> found;
    const json reply = tasked.ask("/score", body);
    for (const json& one : reply["data"]) found.push_back(one["score"]);
    return found;
  }
  std::string message(const json& body) { return error_of(tasked.post("/score", body), 400).value("message", ""); }
  TaskTestServer tasked{cross_encoder()};
};

TEST_F(Score, OneTextIsScoredWithSeveralAndListsInPairs) {
  const double the_dog = the_id * 100 + dog_id, the_cat = the_id * 100 + cat_id, dog_cat = dog_id * 100 + cat_id;
  EXPECT_EQ(scores({{"queries", "the"}, {"documents", {"dog", "cat"}}}), (std::vector<double>{the_dog, the_cat}));
  EXPECT_EQ(scores({{"text_1", {"the", "dog"}}, {"text_2", {"dog", "cat"}}}), (std::vector<double>{the_dog, dog_cat}));
  EXPECT_EQ(scores({{"data_1", "the"}, {"data_2", "cat"}}), std::vector<double>{the_cat});
  const json reply = tasked.ask("/v1/score", {{"queries", "the"}, {"documents", {"dog", "cat"}}});
  EXPECT_EQ(reply["object"], "list");
  EXPECT_EQ(reply["data"][1], json({{"index", 1}, {"object", "score"}, {"score", the_cat}}));
  EXPECT_EQ(reply["usage"], json({{"prompt_tokens", 10}, {"total_tokens", 10}}));
}

TEST_F(Score, FieldsThatDoNotFitAreRefusedWithTheirNames) {
  EXPECT_THAT(message({{"queries", "the"}}), HasSubstr("documents is missing"));
  EXPECT_THAT(message({{"text_2", "the"}}), HasSubstr("text_1 is missing"));
  EXPECT_THAT(message(json::object()), HasSubstr("queries and documents are missing"));
  EXPECT_THAT(message({{"queries", "the"}, {"documents", "cat"}, {"text_1", "a"}, {"text_2", "b"}}),
              HasSubstr("one pair of fields"));
  EXPECT_THAT(message({{"queries", {"the", "dog"}}, {"documents", {"cat"}}}),
              testing::AllOf(HasSubstr("2 texts"), HasSubstr("documents 1")));
  EXPECT_THAT(message({{"queries", ""}, {"documents", "cat"}}), HasSubstr("queries"));
}

}  // namespace
}  // namespace pm::test
