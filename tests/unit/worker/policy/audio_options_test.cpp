// SPDX-License-Identifier: Apache-2.0
// Options of inputs and heads that read audio, one at a time, on a tiny checkpoint.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Wav2Vec2 with two convolutions, one layer and a CTC head.
Synthetic tiny_listener() {
  Synthetic s;
  s.config = {{"model_type", "wav2vec2"},
              {"architectures", {"Wav2Vec2ForCTC"}},
              {"hidden_size", 12},
              {"num_attention_heads", 3},
              {"num_hidden_layers", 1},
              {"intermediate_size", 7},
              {"vocab_size", 9},
              {"conv_dim", {4, 6}},
              {"conv_kernel", {5, 3}},
              {"conv_stride", {3, 2}},
              {"num_conv_pos_embeddings", 4},
              {"num_conv_pos_embedding_groups", 2}};
  s.add("wav2vec2.feature_extractor.conv_layers.0.conv.weight", {4, 1, 5});
  s.add("wav2vec2.feature_extractor.conv_layers.1.conv.weight", {6, 4, 3});
  s.norm("wav2vec2.feature_extractor.conv_layers.0.layer_norm", 4);
  s.norm("wav2vec2.feature_projection.layer_norm", 6);
  s.linear("wav2vec2.feature_projection.projection", 12, 6);
  s.add("wav2vec2.encoder.pos_conv_embed.conv.weight_g", {1, 1, 4});
  s.add("wav2vec2.encoder.pos_conv_embed.conv.weight_v", {12, 6, 4});
  s.add("wav2vec2.encoder.pos_conv_embed.conv.bias", {12});
  s.norm("wav2vec2.encoder.layer_norm", 12);
  const std::string at = "wav2vec2.encoder.layers.0.";
  for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) s.linear(at + "attention." + name, 12, 12);
  s.norm(at + "layer_norm", 12);
  s.linear(at + "feed_forward.intermediate_dense", 7, 12);
  s.linear(at + "feed_forward.output_dense", 12, 7);
  s.norm(at + "final_layer_norm", 12);
  s.linear("lm_head", 9, 12);
  return s;
}

std::string with(const std::string& input) {
  return "extends: wav2vec2\nstacks: {encoder: {input: {" + input + "}}}\n";
}

TEST(AudioOptions, ConvolutionsAreThoseOfTheConfig) {
  const Resolved resolved(tiny_listener());
  const Convolutions& convolutions = *resolved.model.stacks[0].input.convolutions;
  EXPECT_EQ(convolutions.input, "input_values");
  EXPECT_EQ(convolutions.activation, Activation::Gelu);
  ASSERT_EQ(convolutions.layers.size(), 2);
  EXPECT_THAT(convolutions.layers[1].kernel.weight.shape, ElementsAre(6, 4, 3));
  EXPECT_EQ(convolutions.layers[0].stride, 3);
  EXPECT_TRUE(convolutions.layers[0].norm && convolutions.layers[0].norm_over_time && !convolutions.layers[1].norm);
  EXPECT_EQ(convolutions.frames(100), 15);
  EXPECT_EQ(convolutions.frames(10), 0);
  EXPECT_EQ(convolutions.length(1), 11);
  EXPECT_FALSE(resolved.model.stacks[0].input.reads_images());
}

TEST(AudioOptions, TheGainOfThePositionalConvolutionHasTwoNames) {
  const Resolved old(tiny_listener());
  const PositionalConvolution& convolution = *old.model.stacks[0].input.positional_convolution;
  EXPECT_THAT(convolution.gain->shape, ElementsAre(4));
  EXPECT_THAT(convolution.kernel.weight.shape, ElementsAre(12, 6, 4));
  EXPECT_EQ(convolution.groups, 2);
  Synthetic renamed = tiny_listener();
  const std::string at = "wav2vec2.encoder.pos_conv_embed.conv.";
  for (const auto& [from, to] : {std::pair{"weight_g", "parametrizations.weight.original0"},
                                 {"weight_v", "parametrizations.weight.original1"}}) {
    renamed.add(at + to, renamed.tensors.at(at + from).shape);
    renamed.tensors.erase(at + from);
  }
  EXPECT_EQ(Resolved(renamed).param("encoder.positions.gain").tensor->name, at + "parametrizations.weight.original0");
}

TEST(AudioOptions, SizesThatCannotBeAreRefused) {
  const auto refused = [](const std::string& key, const nlohmann::json& value) {
    Synthetic listener = tiny_listener();
    listener.config[key] = value;
    return refusal(listener, Reason::ModelUnreadable);
  };
  EXPECT_THAT(refused("conv_stride", {0, 2}), HasSubstr("stride is 0 with this config.json, expected 1 to 2^20"));
  EXPECT_THAT(refused("conv_kernel", {5}), HasSubstr("element 1 of a list of 1"));
  EXPECT_THAT(refused("num_conv_pos_embedding_groups", 5), HasSubstr("5 groups of 12 channels, expected a divisor"));
  EXPECT_THAT(refused("conv_dim", nlohmann::json::array()), HasSubstr("expected"));
  EXPECT_THAT(refusal(tiny_listener(), Reason::ModelUnreadable, with("convolutions: {padding: 1, size: 4}")),
              HasSubstr("a kernel of 4 taps with a padding of 1, expected an odd number of taps"));
  EXPECT_THAT(refusal(tiny_listener(), Reason::ModelUnreadable, with("convolutions: {gated: true, channels: 7}")),
              HasSubstr("a gated convolution has 7 channels, expected an even number"));
  EXPECT_THAT(refusal(tiny_listener(), Reason::ModelUnreadable, "extends: wav2vec2\nlet: {embedding: 5}\n"),
              HasSubstr("the last convolution gives 6 channels, the embedding has 5"));
  EXPECT_THAT(refusal(tiny_listener(), Reason::ModelUnreadable, with("convolutions: {layers: 65}")),
              HasSubstr("gives 65 convolutions, expected 1 to 64"));
}

TEST(AudioOptions, SectionsNeedTheirKeys) {
  EXPECT_THAT(refusal(tiny_listener(), Reason::UnsupportedPolicy, with("convolutions: {input: ~}")),
              HasSubstr("convolutions need \"input\" and \"kernel\""));
  EXPECT_THAT(refusal(tiny_listener(), Reason::UnsupportedPolicy, with("convolutions: {channels: ~}")),
              HasSubstr("the section needs \"channels\""));
  EXPECT_THAT(refusal(tiny_listener(), Reason::UnsupportedPolicy, with("position: {sinusoidal: paper}")),
              HasSubstr("\"convolution\" stands alone among positions"));
  const std::string head =
      "extends: wav2vec2\narchitectures: {Wav2Vec2ForCTC: {task: forward, heads: [x]}}\nheads: {x: {";
  EXPECT_THAT(refusal(tiny_listener(), Reason::UnsupportedPolicy, head + "time_delay: {layers: 1}}}\n"),
              HasSubstr("a time delay network needs \"linear\""));
  EXPECT_THAT(refusal(tiny_listener(), Reason::UnsupportedPolicy, head + "codebook: {groups: 1}}}\n"),
              HasSubstr("a codebook needs \"states\""));
}

TEST(AudioOptions, LayersOfALanguageAreRefused) {
  for (const char* key : {"add_adapter", "adapter_attn_dim"}) {
    Synthetic listener = tiny_listener();
    listener.config[key] = std::string(key) == "add_adapter" ? nlohmann::json(true) : nlohmann::json(16);
    EXPECT_THAT(refusal(listener, Reason::UnknownArchitecture), HasSubstr(key));
  }
}

}  // namespace
}  // namespace pm::policy
