// SPDX-License-Identifier: Apache-2.0
// Entities of a request: their rows, what heads read of them, and what is refused.
#include "worker/models/requests/entities.h"

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
using policy::EntityStates;
using testing::ElementsAre;
using testing::HasSubstr;

/// A model with entities of which a head reads these states.
policy::Model with_entities(EntityStates states) {
  policy::Head reader = head("reader", classes(std::nullopt));
  reader.entities = states;
  policy::Model made = model({reader});
  policy::Input& input = made.stacks[0].input;
  input.positions.emplace().shape = {32, 8};
  input.position_skips_padding = true;
  policy::Entities& entities = input.entities.emplace();
  entities.input = "entity_ids";
  entities.mask = "entity_attention_mask";
  entities.mentions = "entity_position_ids";
  entities.table.shape = {9, 8};
  entities.positions.shape = {32, 8};
  entities.tables.push_back(table("entity_token_type_ids"));
  entities.tables[0].table.shape = {2, 8};
  return made;
}

Array ints(std::vector<int64_t> shape, std::vector<int64_t> values) { return {std::move(shape), std::move(values)}; }

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  const at::Tensor whole = tensor.contiguous();
  return {whole.const_data_ptr<int64_t>(), whole.const_data_ptr<int64_t>() + whole.numel()};
}

/// Two rows of three columns and two entities; the first column of the second row is padding.
Arrays request() {
  return {{"input_ids", ints({2, 3}, {1, 2, 3, 4, 5, 6})},
          {"attention_mask", ints({2, 3}, {1, 1, 1, 0, 1, 1})},
          {"entity_ids", ints({2, 2}, {7, 8, 3, 0})},
          {"entity_attention_mask", ints({2, 2}, {1, 1, 1, 0})},
          {"entity_position_ids", ints({2, 2, 2}, {4, 5, -1, -1, 9, -1, 1, 1})}};
}

TEST(Entities, StandBehindTheTokensOfTheirRow) {
  const models::Inputs inputs = make_inputs(with_entities(EntityStates::Each), request());
  const models::StackInput& encoder = inputs.stack_inputs.at("encoder");
  const layers::EntityRows& entities = encoder.batch.entities;
  EXPECT_THAT(numbers(entities.ids), ElementsAre(7, 8, 3));
  EXPECT_THAT(numbers(entities.rows), ElementsAre(3, 4, 7));
  EXPECT_THAT(numbers(entities.mentioned), ElementsAre(0, 0, 2)) << "the second is mentioned nowhere";
  EXPECT_THAT(numbers(entities.positions), ElementsAre(4, 5, 9));
  EXPECT_FLOAT_EQ(entities.shares[0].item<float>(), 0.5F);
  EXPECT_THAT(numbers(encoder.batch.positions), ElementsAre(0, 1, 2, 0, 0, 0, 1, 0)) << "entities have none";
  EXPECT_EQ(encoder.tokens, 3);
  EXPECT_EQ(encoder.length, 5);
  EXPECT_THAT(numbers(entities.types.at("entity_token_type_ids")), ElementsAre(0, 0, 0));
}

TEST(Entities, GiveTheStatesThatHeadsRead) {
  Arrays arrays = request();
  const at::Tensor x = at::arange(8, at::kFloat).unsqueeze(1);
  const auto states = [&](EntityStates which) {
    const models::Inputs inputs = make_inputs(with_entities(which), arrays);
    return numbers(models::entity_states(which, inputs.stack_inputs.at("encoder"), x).flatten().to(at::kLong));
  };
  EXPECT_THAT(states(EntityStates::Each), ElementsAre(3, 4, 7));
  EXPECT_THAT(states(EntityStates::First), ElementsAre(3, 7));
  arrays["entity_start_positions"] = ints({2, 2}, {0, 2, 1, 0});
  arrays["entity_end_positions"] = ints({2, 2}, {1, 2, 2, 0});
  EXPECT_THAT(states(EntityStates::Span), ElementsAre(0, 1, 3, 2, 2, 4, 5, 6, 7));
  arrays.erase("entity_start_positions");
  arrays.erase("entity_end_positions");
  arrays["entity_attention_mask"] = ints({2, 2}, {1, 1, 1, 1});
  const models::Inputs inputs = make_inputs(with_entities(EntityStates::Pair), arrays);
  const models::StackInput& encoder = inputs.stack_inputs.at("encoder");
  const at::Tensor nine = at::arange(9, at::kFloat).unsqueeze(1);
  EXPECT_THAT(numbers(models::entity_states(EntityStates::Pair, encoder, nine).flatten().to(at::kLong)),
              ElementsAre(3, 4, 7, 8));
  EXPECT_THAT(numbers(models::token_states(encoder, nine).flatten().to(at::kLong)), ElementsAre(0, 1, 2, 5, 6));
  EXPECT_THAT(numbers(models::padded_part(encoder, nine.narrow(0, 0, 5) + 1, false).flatten().to(at::kLong)),
              ElementsAre(1, 2, 3, 0, 4, 5));
}

TEST(Entities, OfSeveralRequestsAreJoined) {
  const models::Inputs inputs = make_inputs(with_entities(EntityStates::Each), request());
  layers::EntityRows all;
  for (const int64_t row : {0, 8}) models::append_entities(all, inputs.stack_inputs.at("encoder").batch.entities, row);
  EXPECT_THAT(numbers(all.rows), ElementsAre(3, 4, 7, 11, 12, 15));
  EXPECT_THAT(numbers(all.mentioned), ElementsAre(0, 0, 2, 3, 3, 5));
  models::append_entities(all, {}, 16);
  EXPECT_EQ(all.ids.numel(), 6);
}

TEST(Entities, AreRefusedWithTheNameOfTheTensor) {
  const auto refusal = [](EntityStates states, const std::string& name, const std::optional<Array>& array) {
    Arrays arrays = request();
    if (array)
      arrays[name] = *array;
    else
      arrays.erase(name);
    try {
      make_inputs(with_entities(states), arrays);
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::InvalidRequest);
      return std::string(error.what());
    }
    return std::string("served");
  };
  EXPECT_EQ(refusal(EntityStates::Each, "attention_mask", std::nullopt), "served");
  EXPECT_THAT(refusal(EntityStates::Each, "entity_position_ids", std::nullopt),
              HasSubstr("entity_ids is given without entity_position_ids"));
  EXPECT_THAT(refusal(EntityStates::Each, "entity_ids", std::nullopt), HasSubstr("is given without entity_ids"));
  EXPECT_THAT(refusal(EntityStates::Each, "entity_ids", ints({2, 2}, {7, 9, 3, 0})), HasSubstr("from 0 to 8"));
  EXPECT_THAT(refusal(EntityStates::Each, "entity_ids", ints({1, 2}, {7, 8})), HasSubstr("input_ids has 2"));
  EXPECT_THAT(refusal(EntityStates::Each, "entity_position_ids", ints({2, 2, 1}, {4, 32, 0, 0})),
              HasSubstr("from -1 to 31"));
  EXPECT_THAT(refusal(EntityStates::Pair, "attention_mask", std::nullopt),
              HasSubstr("rows without two entities in front"));
  EXPECT_THAT(refusal(EntityStates::First, "entity_attention_mask", ints({2, 2}, {1, 1, 0, 1})),
              HasSubstr("rows without an entity in front"));
  EXPECT_THAT(refusal(EntityStates::Span, "attention_mask", std::nullopt),
              HasSubstr("needs entity_start_positions and entity_end_positions"));
  Arrays bare{{"input_ids", ints({1, 2}, {1, 2})}};
  EXPECT_NO_THROW(make_inputs(with_entities(EntityStates::Each), bare));
  EXPECT_THROW(make_inputs(with_entities(EntityStates::First), bare), Error);
  Arrays spans = request();
  spans["entity_start_positions"] = ints({2, 2}, {0, 0, 0, 0});
  spans["entity_end_positions"] = ints({2, 2}, {0, 0, 1, 0});
  try {
    make_inputs(with_entities(EntityStates::Span), spans);
    FAIL() << "the second row begins with padding";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("entity_start_positions has columns of padding"));
  }
}

TEST(Entities, AreInTheInputsOfAProbe) {
  for (const EntityStates states : {EntityStates::Each, EntityStates::Pair, EntityStates::Span}) {
    const policy::Model made = with_entities(states);
    const models::Inputs inputs = make_inputs(made, models::probe_inputs(made));
    EXPECT_EQ(inputs.stack_inputs.at("encoder").batch.entities.ids.numel(), 2);
  }
}

}  // namespace
}  // namespace pm::test
