// SPDX-License-Identifier: Apache-2.0
// Requests to a stack with latents: the rows of its hidden states and of its output, and images whose pixels are rows.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"
#include "worker/base/error.h"
#include "worker/models/inputs.h"

namespace pm::test {
namespace {

using models::make_inputs;
using testing::HasSubstr;

/// Three layers over seven latents, of which the second begins a block. `queries` read them; 0: the rows of the input.
policy::Model latent_model(int64_t queries) {
  policy::Model made = model();
  policy::Stack& stack = made.stacks[0];
  stack.layers.resize(3);
  stack.layers[1].repeats_state = true;
  stack.input.latents.emplace().vectors.shape = {7, 8};
  policy::OutputQueries& reads = stack.output.queries.emplace();
  if (queries > 0) reads.vectors.emplace().shape = {queries, 8};
  return made;
}

Arrays two_texts() {
  return {{"input_ids", {{2, 3}, std::vector<int64_t>{1, 2, 3, 4, 5, 6}}},
          {"attention_mask", {{2, 3}, std::vector<int64_t>{1, 1, 1, 1, 1, 0}}}};
}

TEST(LatentRows, AreTheSameForEachHiddenState) {
  const models::Inputs inputs = make_inputs(latent_model(4), two_texts());
  EXPECT_EQ(inputs.stack_inputs.at("encoder").batch_rows(), 5) << "padding is no row";
  for (int64_t state = 0; state <= 4; ++state) EXPECT_EQ(inputs.rows_of("encoder", state).length, 7) << state;
  EXPECT_EQ(inputs.rows_of("encoder").length, 4) << "the output has those of the queries";
  EXPECT_EQ(inputs.rows_of("encoder").batch.sequences.spans[1].first, 4);
  EXPECT_EQ(policy::least_states(latent_model(4).stacks[0]), 7);
  EXPECT_EQ(policy::least_states(latent_model(9).stacks[0]), 9);
}

TEST(LatentRows, OfTheOutputMayBeThoseOfTheInput) {
  const models::Inputs inputs = make_inputs(latent_model(0), two_texts());
  EXPECT_EQ(inputs.rows_of("encoder").batch_rows(), 5);
  EXPECT_EQ(inputs.rows_of("encoder").length, 3);
}

/// Latents that read the pixels of two frames; `side`: of every image, 0: any.
policy::Model pixel_model(int64_t side) {
  policy::Model made = latent_model(1);
  policy::Input& input = made.stacks[0].input;
  input.token.reset();
  input.position = policy::PositionKind::None;
  policy::Pixels& pixels = input.pixels.emplace();
  pixels.input = "inputs";
  pixels.frames = 2;
  pixels.image = {side, side};
  return made;
}

std::string refused(const policy::Model& model, std::vector<int64_t> shape) {
  size_t count = 1;
  for (const int64_t size : shape) count *= static_cast<size_t>(size);
  try {
    make_inputs(model, {{"inputs", {std::move(shape), std::vector<float>(count)}}});
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::InvalidRequest);
    return error.what();
  }
  return "taken";
}

TEST(Pixels, AreRowsOfAnySizeOrOfOne) {
  EXPECT_EQ(refused(pixel_model(0), {1, 2, 3, 5, 4}), "taken");
  EXPECT_EQ(refused(pixel_model(5), {1, 2, 3, 5, 5}), "taken");
  EXPECT_THAT(refused(pixel_model(5), {1, 2, 3, 5, 4}),
              HasSubstr("inputs has the shape [1, 2, 3, 5, 4], expected [images, 2 frames, 3 channels, 5, 5]"));
  EXPECT_THAT(refused(pixel_model(0), {1, 2, 4, 5, 4}), HasSubstr("3 channels, height, width]"));
  EXPECT_THAT(refused(pixel_model(0), {1, 3, 3, 5, 4}), HasSubstr("2 frames"));
  EXPECT_THAT(refused(pixel_model(0), {2, 3, 5, 4}), HasSubstr("expected [images, 2 frames"));
  EXPECT_THAT(refused(pixel_model(0), {1, 2, 3, 1, (1 << 18) + 1}), HasSubstr("at most 2^18 are read"));
}

TEST(Pixels, MakeNoCellsOfImagesThatAreSmallerThanTheConvolution) {
  policy::Model model = pixel_model(0);
  model.stacks[0].input.pixels->convolution.emplace().stride = 2;
  EXPECT_EQ(refused(model, {1, 2, 3, 5, 6}), "taken");
  EXPECT_THAT(refused(model, {1, 2, 3, 4, 6}), HasSubstr("4 x 6 pixels, too small for the convolution"));
}

}  // namespace
}  // namespace pm::test
