// SPDX-License-Identifier: Apache-2.0
// Stacks over cells of images and stacks of learned queries: what is refused, and how images become rows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/base/error.h"
#include "worker/models/inputs.h"
#include "worker/models/model.h"
#include "worker/models/probe_inputs.h"

namespace pm::test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A backbone that makes a cell of 8 x 8 pixels, then four queries that attend to its cells.
policy::Model detector() {
  policy::Model model;
  model.architecture = "TinyDetector";
  model.model_type = "tiny";
  model.task = policy::Task::DetectObjects;
  model.kind = policy::ModelKind::EncoderDecoder;
  policy::Stack cells, queries;
  cells.name = "encoder";
  queries.name = "decoder";
  for (policy::Stack* stack : {&cells, &queries}) {
    stack->hidden = 8;
    stack->layers.resize(1);
    stack->layers[0].order = policy::Order::Post;
  }
  policy::Backbone& backbone = cells.input.backbone.emplace();
  backbone.mask = "pixel_mask";
  backbone.channels = 1;
  backbone.stem.stride = 2;
  policy::ResidualBlock& block = backbone.stages.emplace_back().emplace_back();
  block.convolutions.emplace_back().stride = 2;
  cells.input.projection = linear({8, 5});
  cells.input.grid.emplace();
  queries.input.queries.emplace().shape = {4, 8};
  queries.layers[0].cross.emplace().source = "encoder";
  model.stacks = {cells, queries};
  return model;
}

Array zeros(std::vector<int64_t> shape) {
  int64_t count = 1;
  for (int64_t size : shape) count *= size;
  return {std::move(shape), std::vector<float>(static_cast<size_t>(count))};
}

std::string refusal(const policy::Model& model, const Arrays& arrays) {
  try {
    models::make_inputs(model, arrays);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::InvalidRequest);
    return error.what();
  }
  return "runs";
}

TEST(Detection, CellsAreRowsWhereTheMaskShowsThem) {
  Array mask{{2, 17, 16}, std::vector<int64_t>(2 * 17 * 16, 1)};
  auto& values = std::get<std::vector<int64_t>>(mask.values);
  for (int64_t y = 0; y < 17; ++y)
    for (int64_t x = 0; x < 16; ++x)
      if (y >= 8 || x >= 9) values[static_cast<size_t>(y * 16 + x)] = 0;
  const models::Inputs inputs =
      models::make_inputs(detector(), {{"pixel_values", zeros({2, 1, 17, 16})}, {"pixel_mask", mask}});
  const models::StackInput &cells = inputs.stack_inputs.at("encoder"), &queries = inputs.stack_inputs.at("decoder");
  EXPECT_EQ(cells.length, 3 * 2);
  EXPECT_EQ(cells.batch.sequences.spans[0].tokens, 4);  // cells 0 and 1 down (pixels 0 and 5), 0 and 1 across (0 and 8)
  EXPECT_EQ(cells.batch.sequences.spans[1].tokens, 6);
  EXPECT_EQ(queries.batch_rows(), 8);
  EXPECT_EQ(queries.batch.positions[5].item<int64_t>(), 1);
}

TEST(Detection, TheProbeIsABlackImage) {
  const Arrays arrays = models::probe_inputs(detector());
  ASSERT_EQ(arrays.size(), 1u);
  EXPECT_THAT(arrays.at("pixel_values").shape, ElementsAre(1, 1, 32, 32));
  EXPECT_EQ(models::make_inputs(detector(), arrays).stack_inputs.at("encoder").batch_rows(), 4 * 4);
}

TEST(Detection, ImagesThatCannotBeAreRefusedByName) {
  policy::Model model = detector();
  EXPECT_THAT(refusal(model, {}), HasSubstr("no tensor \"pixel_values\""));
  EXPECT_THAT(refusal(model, {{"pixel_values", zeros({1, 3, 8, 8})}}),
              HasSubstr("expected [images, 1, height, width]"));
  EXPECT_THAT(refusal(model, {{"pixel_values", zeros({1, 1, 8, 8})}, {"pixel_mask", zeros({1, 8, 7})}}),
              HasSubstr("pixel_mask has the shape"));
  EXPECT_THAT(refusal(model, {{"pixel_values", zeros({1, 1, 8, 8})}, {"pixel_mask", zeros({1, 8, 8})}}),
              HasSubstr("pixel_mask hides image 0"));
  EXPECT_THAT(refusal(model, {{"pixel_values", zeros({1, 1, 8, 8})}, {"decoder_inputs_embeds", zeros({1, 4, 8})}}),
              HasSubstr("\"decoder_inputs_embeds\" is not an input of TinyDetector"));
  model.stacks[0].input.grid->rows.emplace().shape = {2, 4};
  EXPECT_THAT(refusal(model, {{"pixel_values", zeros({1, 1, 17, 8})}}), HasSubstr("positions for 2 on each side"));
}

TEST(Detection, StacksThatThisVersionDoesNotRunAreRefused) {
  const auto refused = [](const auto& change) -> std::string {
    policy::Model model = detector();
    change(model);
    try {
      models::Model::check(model);
    } catch (const Error& error) {
      return error.what();
    }
    return "runs";
  };
  EXPECT_EQ(refused([](policy::Model&) {}), "runs");
  EXPECT_THAT(refused([](auto& model) { model.stacks[0].input.token.emplace(); }), HasSubstr("beside tokens"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[0].input.backbone.reset(); }),
              HasSubstr("positions of cells alone"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[0].input.grid.reset(); }), HasSubstr("without a projection or"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[1].input.grid.emplace(); }), HasSubstr("with a projection or"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[1].output.pooler.emplace(); }), HasSubstr("pools cells"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[1].layers[0].cross.reset(); }),
              HasSubstr("do not attend to cells"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[0].layers[0].cross.emplace(); }), HasSubstr("cross-attention of"));
  EXPECT_THAT(refused([](auto& model) { model.stacks[0].layers[0].attention.mask = policy::Mask::Causal; }),
              HasSubstr("attention that is causal"));
}

}  // namespace
}  // namespace pm::test
