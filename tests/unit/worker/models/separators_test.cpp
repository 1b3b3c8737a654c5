// SPDX-License-Identifier: Apache-2.0
// Global tokens and questions, as a request or its separators give them.
#include "worker/models/separators.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/base/error.h"
#include "worker/models/inputs.h"
#include "worker/models/probe_inputs.h"

namespace pm::test {
namespace {

using models::make_inputs;
using policy::GlobalTokens;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

policy::Model windowed(GlobalTokens global) {
  policy::Model made = model();
  made.stacks[0].layers[0].attention.pattern = policy::SlidingWindow{};
  made.stacks[0].input.positions.emplace().shape = {32, 8};
  made.global_tokens = global;
  made.separator = 9;
  return made;
}

Array ints(std::vector<int64_t> shape, std::vector<int64_t> values) { return {std::move(shape), std::move(values)}; }

const Array texts = ints({2, 8}, {0, 1, 9, 9, 2, 3, 9, 4,  //
                                  0, 9, 9, 5, 6, 7, 8, 9});

std::vector<ops::SequenceColumns> columns(const policy::Model& model, const Arrays& arrays) {
  return make_inputs(model, arrays).stack_inputs.at("encoder").batch.columns;
}

TEST(GlobalTokens, AreWhatTheClassSaysWithoutAMask) {
  const auto of = [](GlobalTokens global) { return columns(windowed(global), {{"input_ids", texts}}); };
  EXPECT_THAT(of(GlobalTokens::None)[0].global_tokens, IsEmpty());
  EXPECT_THAT(of(GlobalTokens::First)[0].global_tokens, ElementsAre(0));
  EXPECT_THAT(of(GlobalTokens::BeforeSeparator)[0].global_tokens, ElementsAre(0, 1));
  EXPECT_THAT(of(GlobalTokens::BeforeSeparator)[1].global_tokens, ElementsAre(0));
  EXPECT_THAT(of(GlobalTokens::AfterSeparators)[0].global_tokens, ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(of(GlobalTokens::AfterSeparators)[1].global_tokens, ElementsAre(3, 4, 5, 6, 7));
  EXPECT_EQ(of(GlobalTokens::First)[0].length, 8);
  EXPECT_THAT(of(GlobalTokens::First)[0].columns, IsEmpty());
}

TEST(GlobalTokens, AreThoseOfTheMaskThatAreNoPadding) {
  const auto found =
      columns(windowed(GlobalTokens::First),
              {{"input_ids", texts},
               {"attention_mask", ints({2, 8}, {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0})},
               {"global_attention_mask", ints({2, 8}, {0, 1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0})}});
  EXPECT_THAT(found[0].global_tokens, ElementsAre(0, 5));  // numbers of tokens, not of columns
  EXPECT_THAT(found[0].columns, ElementsAre(2, 3, 4, 5, 6, 7));
  EXPECT_THAT(found[1].global_tokens, IsEmpty());
  EXPECT_THAT(found[1].columns, IsEmpty());
  EXPECT_EQ(found[1].length, 8);
}

std::string refusal(const policy::Model& model, const Arrays& arrays) {
  try {
    make_inputs(model, arrays);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::InvalidRequest);
    return error.what();
  }
  return "served";
}

TEST(GlobalTokens, NeedThreeSeparatorsInEachRowWhereTheClassLooksForThem) {
  const Arrays two{{"input_ids", ints({1, 4}, {1, 9, 9, 2})}};
  for (const GlobalTokens global : {GlobalTokens::BeforeSeparator, GlobalTokens::AfterSeparators})
    EXPECT_THAT(refusal(windowed(global), two),
                HasSubstr("row 0 of input_ids has the separator (id 9) 2 times, TinyModel finds its global tokens by "
                          "three of them; give global_attention_mask otherwise"));
  EXPECT_EQ(refusal(windowed(GlobalTokens::First), two), "served");
}

TEST(GlobalTokens, AMaskHasTheShapeOfTheIdsAndZerosAndOnes) {
  const policy::Model made = windowed(GlobalTokens::None);
  EXPECT_THAT(refusal(made, {{"input_ids", texts}, {"global_attention_mask", ints({1, 2}, {0, 1})}}),
              HasSubstr("global_attention_mask has the shape [1, 2], expected [2, 8]"));
  EXPECT_THAT(refusal(made, {{"input_ids", ints({1, 2}, {0, 1})}, {"global_attention_mask", ints({1, 2}, {0, 2})}}),
              HasSubstr("other values than 0 and 1"));
  EXPECT_THAT(refusal(model(), {{"input_ids", texts}, {"global_attention_mask", texts}}),
              HasSubstr("\"global_attention_mask\" is not an input"));
}

TEST(GlobalTokens, OfTheProbeAreGivenSoThatTheirWeightsAreRead) {
  for (const GlobalTokens global : {GlobalTokens::None, GlobalTokens::AfterSeparators}) {
    policy::Model made = windowed(global);
    EXPECT_THAT(columns(made, models::probe_inputs(made))[0].global_tokens, ElementsAre(0));
    made.task = policy::Task::MultipleChoice;
    EXPECT_THAT(columns(made, models::probe_inputs(made))[0].global_tokens, ElementsAre(0));
  }
}

policy::Model questioned() {
  policy::ClassesSpec spec = classes(std::nullopt);
  spec.mask_question = true;
  policy::Model made = model({head("span", spec)});
  made.stacks[0].input.positions.emplace().shape = {32, 8};
  made.stacks[0].input.tables = {table("token_type_ids")};
  made.stacks[0].input.tables[0].table.shape = {2, 8};
  made.separator = 9;
  return made;
}

TEST(Questions, EndWithTheFirstSeparatorOrWhereTheRequestSays) {
  const Array ids = ints({2, 5}, {1, 2, 9, 3, 9, 1, 2, 3, 4, 5});
  models::Inputs found = make_inputs(questioned(), {{"input_ids", ids}});
  EXPECT_TRUE(found.head_input("question_lengths").equal(at::tensor({3, 1}, at::kLong)));
  EXPECT_TRUE(found.stack_inputs.at("encoder")
                  .batch.types.at("token_type_ids")
                  .equal(at::tensor({0, 0, 0, 1, 1, 0, 1, 1, 1, 1}, at::kLong)));
  found = make_inputs(questioned(), {{"input_ids", ids},
                                     {"question_lengths", ints({2, 1}, {4, 2})},
                                     {"token_type_ids", ints({2, 5}, {1, 1, 1, 1, 1, 0, 0, 0, 0, 0})}});
  EXPECT_TRUE(found.head_input("question_lengths").equal(at::tensor({4, 2}, at::kLong)));
  EXPECT_TRUE(found.stack_inputs.at("encoder")
                  .batch.types.at("token_type_ids")
                  .equal(at::tensor({1, 1, 1, 1, 1, 0, 0, 0, 0, 0}, at::kLong)));
  EXPECT_THAT(refusal(questioned(), {{"input_ids", ids}, {"question_lengths", ints({1, 2}, {4, 2})}}),
              HasSubstr("question_lengths has the shape [1, 2], expected [2, 1]"));
}

}  // namespace
}  // namespace pm::test
