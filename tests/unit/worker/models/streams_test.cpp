// SPDX-License-Identifier: Apache-2.0
// Requests to models of two streams: their rows, what attends to what, what is refused and what outputs are called.
#include "worker/models/requests/two_streams.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/base/error.h"
#include "worker/models/inputs.h"
#include "worker/models/model.h"
#include "worker/models/probe_inputs.h"

namespace pm::test {
namespace {

using models::make_inputs;
using testing::ElementsAre;
using testing::HasSubstr;

/// A text, vectors of two parts, and a stack that joins both.
policy::Model two_streams() {
  policy::Model made = model();
  made.stacks[0].name = "language";
  policy::Stack& vision = made.stacks.emplace_back();
  vision.name = "vision";
  vision.hidden = 8;
  vision.layers.resize(2);
  policy::Vectors& vectors = vision.input.vectors.emplace();
  vectors.mask = "mask";
  vectors.parts = {{.input = "features", .projection = linear({8, 3}), .norm = {}},
                   {.input = "boxes", .projection = linear({8, 2}), .norm = {}}};
  policy::Stack& joined = made.stacks.emplace_back();
  joined.name = "cross";
  joined.hidden = 8;
  joined.joins = {"language", "vision"};
  joined.layers.resize(1);
  joined.layers[0].order = policy::Order::Post;
  joined.layers[0].co_attention.emplace();
  return made;
}

Array ints(std::vector<int64_t> shape, std::vector<int64_t> values) { return {std::move(shape), std::move(values)}; }

Array floats(std::vector<int64_t> shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(i);
  return {std::move(shape), std::move(values)};
}

/// Two rows of three columns, the last of the second row is padding; three vectors, the first of the first row is none.
Arrays request() {
  return {{"input_ids", ints({2, 3}, {1, 2, 3, 4, 5, 6})},
          {"attention_mask", ints({2, 3}, {1, 1, 1, 1, 1, 0})},
          {"features", floats({2, 3, 3})},
          {"boxes", floats({2, 3, 2})},
          {"mask", ints({2, 3}, {0, 1, 1, 1, 1, 1})}};
}

TEST(Streams, OfVectorsAreRowsWithoutThoseThatTheMaskLeavesOut) {
  const models::Inputs inputs = make_inputs(two_streams(), request());
  const models::StackInput& vision = inputs.stack_inputs.at("vision");
  ASSERT_EQ(vision.batch.vectors.size(), 2u);
  EXPECT_THAT(vision.batch.vectors[0].sizes(), ElementsAre(5, 3));
  EXPECT_EQ(vision.batch.vectors[0][0][0].item<float>(), 3);
  EXPECT_EQ(vision.batch.vectors[1][4][1].item<float>(), 11);
  EXPECT_EQ(vision.batch.sequences.spans[0].tokens, 2);
  EXPECT_EQ(vision.length, 3);
  EXPECT_EQ(inputs.stack_inputs.at("cross").batch_rows(), 5) << "those of the text";
  Arrays whole = request();
  whole.erase("mask");
  EXPECT_EQ(make_inputs(two_streams(), whole).stack_inputs.at("vision").batch_rows(), 6);
}

TEST(Streams, AttendToTheirCounterparts) {
  const models::Inputs inputs = make_inputs(two_streams(), request());
  const layers::Batch both =
      models::two_streams(inputs.stack_inputs.at("cross").batch, inputs.stack_inputs.at("vision").batch);
  ASSERT_EQ(both.sequences.spans.size(), 4u);
  std::vector<std::vector<int64_t>> spans;
  for (const ops::SequenceSpan& span : both.sequences.spans)
    spans.push_back({span.first, span.tokens, span.key_row, span.keys});
  EXPECT_THAT(spans, ElementsAre(ElementsAre(0, 3, 5, 2), ElementsAre(3, 2, 7, 3), ElementsAre(5, 2, 0, 3),
                                 ElementsAre(7, 3, 3, 2)));
  ASSERT_EQ(both.joined.size(), 2u);
  EXPECT_EQ(both.joined[1].sequences.spans[1].key_row, 2);
  layers::Batch fewer = inputs.stack_inputs.at("vision").batch;
  fewer.sequences.spans.pop_back();
  EXPECT_THROW(models::two_streams(inputs.stack_inputs.at("cross").batch, fewer), std::logic_error);
}

TEST(Streams, AreRefusedWithTheNameOfTheTensor) {
  const auto refusal = [](const std::string& name, const std::optional<Array>& array) {
    Arrays arrays = request();
    if (array)
      arrays[name] = *array;
    else
      arrays.erase(name);
    try {
      make_inputs(two_streams(), arrays);
    } catch (const Error& error) {
      EXPECT_EQ(error.reason, Reason::InvalidRequest);
      return std::string(error.what());
    }
    return std::string("served");
  };
  EXPECT_THAT(refusal("features", std::nullopt), HasSubstr("the inputs have no tensor \"features\""));
  EXPECT_THAT(refusal("boxes", std::nullopt), HasSubstr("the inputs have no tensor \"boxes\""));
  EXPECT_THAT(refusal("features", floats({2, 3, 4})), HasSubstr("expected [2, vectors, 3]"));
  EXPECT_THAT(refusal("features", floats({1, 3, 3})), HasSubstr("expected [2, vectors, 3]"));
  EXPECT_THAT(refusal("boxes", floats({2, 4, 2})), HasSubstr("boxes has the shape [2, 4, 2], expected [2, 3, 2]"));
  EXPECT_THAT(refusal("mask", ints({2, 2}, {1, 1, 1, 1})), HasSubstr("mask has the shape [2, 2], expected [2, 3]"));
  EXPECT_THAT(refusal("mask", ints({2, 3}, {1, 1, 1, 0, 0, 0})), HasSubstr("row 1 of mask is all zero"));
  EXPECT_THAT(refusal("visual_embeds", floats({2, 3, 3})), HasSubstr("\"visual_embeds\" is not an input"));
  Arrays alone = request();
  alone.erase("input_ids");
  alone.erase("attention_mask");
  try {
    make_inputs(two_streams(), alone);
    FAIL() << "there is no text";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("got no inputs of the stack \"language\", which it joins to another; it takes "
                                        "input_ids, attention_mask, features, boxes, mask"));
  }
}

TEST(Streams, AreInTheInputsOfAProbe) {
  const policy::Model made = two_streams();
  const models::Inputs inputs = make_inputs(made, models::probe_inputs(made));
  EXPECT_EQ(inputs.stack_inputs.at("vision").batch.vectors[0].size(1), 3);
  EXPECT_EQ(inputs.stack_inputs.at("cross").batch_rows(), 1);
}

TEST(Streams, CountTheStatesOfBothStacks) {
  const policy::Model made = two_streams();
  const auto names = [&](size_t stack, size_t stream = 0) {
    return models::stack_names(made, made.stacks[stack], stream);
  };
  EXPECT_EQ(names(1).states, "") << "the joined stack puts them out";
  EXPECT_EQ(names(1).hidden_state(0), "");
  EXPECT_EQ(names(1).hidden_state(2), "vision_hidden_states.1");
  EXPECT_EQ(names(0).attentions, "language_attentions.");
  EXPECT_EQ(names(2).states, "language_output");
  EXPECT_EQ(names(2).pooled, "pooled_output");
  EXPECT_EQ(names(2).attentions, "cross_attentions.");
  EXPECT_EQ(names(2).hidden_state(1), "language_hidden_states.1") << "the text has one layer of its own";
  EXPECT_EQ(names(2, 1).states, "vision_output");
  EXPECT_EQ(names(2, 1).hidden_state(1), "vision_hidden_states.2");
}

/// What is done to the model, and why it is refused then.
struct Refused {
  const char* name;
  void (*change)(policy::Model&);
  const char* message;
};

class StreamOptions : public testing::TestWithParam<Refused> {};

TEST_P(StreamOptions, AreRefused) {
  policy::Model changed = two_streams();
  EXPECT_NO_THROW(models::Model::check(changed));
  GetParam().change(changed);
  try {
    models::Model::check(changed);
    FAIL() << "it runs";
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::UnknownArchitecture);
    EXPECT_THAT(error.what(), HasSubstr(GetParam().message));
  }
}

constexpr const char* layers_alone = "has two streams in layers that are not post-norm, or have further blocks";
constexpr const char* attention_alone = "has two streams whose attention is grouped, causal, sparse";
constexpr const char* vectors_alone = "has vectors in place of tokens beside tokens";

INSTANTIATE_TEST_SUITE_P(
    OfTwoStreams, StreamOptions,
    testing::ValuesIn(std::vector<Refused>{
        {"PreNorm", [](policy::Model& m) { m.stacks[2].layers[0].order = policy::Order::Pre; }, layers_alone},
        {"Multiplied", [](policy::Model& m) { m.stacks[2].layers[0].residual_multiplier = 2; }, layers_alone},
        {"Bottleneck", [](policy::Model& m) { m.stacks[2].layers[0].bottleneck.emplace(); }, layers_alone},
        {"Causal", [](policy::Model& m) { m.stacks[2].layers[0].attention.mask = policy::Mask::Causal; },
         attention_alone},
        {"GroupedAcross", [](policy::Model& m) { m.stacks[2].layers[0].co_attention->across.heads = 2; },
         attention_alone},
        {"RotarySecond", [](policy::Model& m) { m.stacks[2].layers[0].co_attention->attention.rotary.emplace(); },
         attention_alone},
        {"TokensBesideVectors", [](policy::Model& m) { m.stacks[1].input.token.emplace(); }, vectors_alone},
        {"NormOfVectors", [](policy::Model& m) { m.stacks[1].input.norm.emplace(); }, vectors_alone}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pm::test
