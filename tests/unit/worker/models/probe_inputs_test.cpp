// SPDX-License-Identifier: Apache-2.0
// The smallest inputs of a model, by what its stacks and heads need.
#include "worker/models/probe_inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/models/models.h"

namespace pm::test {
namespace {

using models::probe_inputs;
using policy::Pool;
using testing::ElementsAre;

std::vector<std::string> names(const Arrays& arrays) {
  std::vector<std::string> all;
  for (const auto& [name, array] : arrays) all.push_back(name);
  return all;
}

const std::vector<int64_t>& ids(const Arrays& arrays) {
  return std::get<std::vector<int64_t>>(arrays.at("input_ids").values);
}

TEST(ProbeInputs, AreOneTokenWhichIsTheEndTokenIfThereIsOne) {
  policy::Model encoder = model({head("class", classes(Pool::First))});
  EXPECT_THAT(names(probe_inputs(encoder)), ElementsAre("input_ids"));
  EXPECT_THAT(probe_inputs(encoder).at("input_ids").shape, ElementsAre(1, 1));
  EXPECT_THAT(ids(probe_inputs(encoder)), ElementsAre(0));
  encoder.eos = {7, 9};
  EXPECT_THAT(ids(probe_inputs(encoder)), ElementsAre(7));
  encoder.eos = {100};  // not in the vocabulary
  EXPECT_THAT(ids(probe_inputs(encoder)), ElementsAre(0));
  encoder.task = policy::Task::MultipleChoice;
  EXPECT_THAT(probe_inputs(encoder).at("input_ids").shape, ElementsAre(1, 1, 1));
}

TEST(ProbeInputs, OfAnEncoderDecoderAreTokensOfTheEncoder) {
  policy::Model both = model();
  both.stacks[0].vocab = 40;
  both.stacks.push_back(encoder());
  both.stacks[1].name = "decoder";
  both.stacks[1].vocab = 60;
  both.eos = {50};  // in the vocabulary of the decoder only
  EXPECT_THAT(ids(probe_inputs(both)), ElementsAre(0));
}

TEST(ProbeInputs, OfAnEncoderOfImagesStandBesideTokensOfItsDecoder) {
  policy::Model captions = model();
  captions.task = policy::Task::Forward;
  policy::Stack& sees = captions.stacks[0];
  sees.input = {};
  sees.input.projection = linear({8, 3, 2, 2});
  sees.input.image = {4, 6};
  captions.stacks.push_back(encoder());
  captions.stacks[1].name = "decoder";
  captions.stacks[1].layers[0].cross.emplace().source = "encoder";
  const Arrays inputs = probe_inputs(captions);
  EXPECT_THAT(names(inputs), ElementsAre("decoder_input_ids", "pixel_values"));
  EXPECT_EQ(models::blank_source(captions, 1), Arrays({{"pixel_values", inputs.at("pixel_values")}}));
  EXPECT_THROW(models::blank_source(model(), 1), std::logic_error);
}

TEST(ProbeInputs, HaveTheTokensThatTheHeadsNeed) {
  EXPECT_THAT(probe_inputs(model({head("answer", classes(Pool::LastButOne))})).at("input_ids").shape,
              ElementsAre(1, 2));
  policy::SpansSpec spans;
  spans.starts = 3;
  spans.ends = 4;
  EXPECT_THAT(probe_inputs(model({head("search", spans)})).at("input_ids").shape, ElementsAre(1, 4));
  spans.starts = 6;
  const Arrays both = probe_inputs(model({head("search", spans), head("answer", classes(Pool::LastButOne))}));
  EXPECT_THAT(both.at("input_ids").shape, ElementsAre(1, 6));
  EXPECT_EQ(ids(both).size(), 6u);
}

TEST(ProbeInputs, OfPairsAreATokenAndADenseVector) {
  policy::PairsSpec pairs;
  pairs.chosen = "region_to_phrase_position";
  policy::Model phrases = model({head("regions", pairs)});
  phrases.stacks[0].input.features = features();
  const Arrays inputs = probe_inputs(phrases);
  EXPECT_THAT(names(inputs), ElementsAre("input_ids", "region_to_phrase_position", "visual_embeds"));
  EXPECT_THAT(inputs.at("visual_embeds").shape, ElementsAre(1, 1, 6));
  EXPECT_EQ(std::get<std::vector<float>>(inputs.at("visual_embeds").values).size(), 6u);
  EXPECT_THAT(inputs.at("region_to_phrase_position").shape, ElementsAre(1, 1));
}

TEST(ProbeInputs, OfImageStacksAreABlackImage) {
  policy::Model both = model();
  policy::Stack vision = encoder();
  vision.name = "vision";
  vision.input.token.reset();
  vision.input.projection = linear({8, 3, 4, 4});
  vision.input.class_token.emplace();
  vision.input.image = {12, 8};
  vision.positions = 7;
  both.stacks.push_back(vision);
  const Arrays inputs = probe_inputs(both);
  EXPECT_THAT(names(inputs), ElementsAre("input_ids", "pixel_values"));
  EXPECT_THAT(inputs.at("pixel_values").shape, ElementsAre(1, 3, 12, 8));
  EXPECT_EQ(std::get<std::vector<float>>(inputs.at("pixel_values").values).size(), 3u * 12 * 8);
}

/// Two convolutions: 6 taps every 4 samples, then 3 every 2.
policy::Model listener(int64_t bins = 0) {
  policy::Model model = test::model();
  model.stacks[0].input.token.reset();
  policy::Convolutions& convolutions = model.stacks[0].input.convolutions.emplace();
  convolutions.input = bins > 0 ? "input_features" : "input_values";
  convolutions.bins = bins;
  convolutions.layers = {{.kernel = linear({5, 1, 6}), .stride = 4, .norm = {}},
                         {.kernel = linear({5, 5, 3}), .stride = 2, .norm = {}}};
  return model;
}

TEST(ProbeInputs, OfAudioAreTheSilenceOfOneFrame) {
  EXPECT_THAT(names(probe_inputs(listener())), ElementsAre("input_values"));
  EXPECT_THAT(probe_inputs(listener()).at("input_values").shape, ElementsAre(1, 14));
  EXPECT_THAT(probe_inputs(listener(7)).at("input_features").shape, ElementsAre(1, 14, 7));
  EXPECT_EQ(std::get<std::vector<float>>(probe_inputs(listener(7)).at("input_features").values).size(), 14u * 7);
  policy::Model spectrograms = listener(7);
  spectrograms.stacks[0].input.convolutions->bins_first = true;
  spectrograms.stacks[0].input.convolutions->exact_length = 40;
  EXPECT_THAT(probe_inputs(spectrograms).at("input_features").shape, ElementsAre(1, 7, 40));
}

TEST(ProbeInputs, HaveTheFramesThatSpeakerVectorsNeed) {
  policy::Model speakers = listener();
  policy::TimeDelaySpec spec;
  spec.layers = {{.linear = {}, .taps = 3, .dilation = 2}, {.linear = {}, .taps = 2, .dilation = 3}};
  EXPECT_EQ(spec.reach(true), 7);
  EXPECT_EQ(spec.reach(false), 3);
  speakers.heads = {head("speaker", spec)};
  EXPECT_EQ(speakers.stacks[0].input.convolutions->frames(probe_inputs(speakers).at("input_values").shape[1]), 9);
}

TEST(ProbeInputs, OfADecoderBehindAudioAreItsStart) {
  policy::Model answers = listener(4);
  policy::Stack decoder = encoder();
  decoder.name = "decoder";
  decoder.layers[0].cross.emplace().source = answers.stacks[0].name;
  answers.stacks.push_back(decoder);
  EXPECT_THAT(names(probe_inputs(answers)), ElementsAre("decoder_input_ids", "input_features"));
}

}  // namespace
}  // namespace pm::test
