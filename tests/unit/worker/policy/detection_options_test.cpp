// SPDX-License-Identifier: Apache-2.0
// Options of backbones, of positions of cells and of heads that detect, one at a time, on a tiny checkpoint.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void convolution(Synthetic& s, const std::string& name, const std::string& norm, std::vector<int64_t> shape) {
  for (const char* part : {"weight", "bias", "running_mean", "running_var"}) s.add(norm + "." + part, {shape.front()});
  s.add(name + ".weight", std::move(shape));
}

/// DETR with two stages of one block, one encoder and one decoder layer.
Synthetic tiny_detector() {
  Synthetic s;
  s.config = {{"model_type", "detr"},
              {"architectures", {"DetrForObjectDetection"}},
              {"d_model", 12},
              {"encoder_layers", 1},
              {"decoder_layers", 1},
              {"encoder_attention_heads", 3},
              {"decoder_attention_heads", 2},
              {"encoder_ffn_dim", 7},
              {"decoder_ffn_dim", 9},
              {"num_queries", 5},
              {"backbone_config",
               {{"model_type", "resnet"},
                {"embedding_size", 4},
                {"hidden_sizes", {8, 16}},
                {"depths", {1, 1}},
                {"layer_type", "bottleneck"}}}};
  const std::string at = "model.backbone.conv_encoder.model.";
  convolution(s, at + "embedder.embedder.convolution", at + "embedder.embedder.normalization", {4, 3, 7, 7});
  int64_t in = 4;
  for (const auto& [stage, out] : {std::pair{"0", 8}, {"1", 16}}) {
    const std::string block = at + "encoder.stages." + stage + ".layers.0.";
    const auto one = [&](const std::string& name, std::vector<int64_t> shape) {
      convolution(s, block + name + ".convolution", block + name + ".normalization", std::move(shape));
    };
    one("layer.0", {out / 4, in, 1, 1});
    one("layer.1", {out / 4, out / 4, 3, 3});
    one("layer.2", {out, out / 4, 1, 1});
    one("shortcut", {out, in, 1, 1});
    in = out;
  }
  s.add("model.input_projection.weight", {12, 16, 1, 1});
  s.add("model.input_projection.bias", {12});
  s.add("model.query_position_embeddings.weight", {5, 12});
  for (const auto& [stack, ffn] : {std::pair{"encoder", 7}, {"decoder", 9}}) {
    const std::string layer = std::string("model.") + stack + ".layers.0.";
    std::vector<std::string> blocks{"self_attn"};
    if (ffn == 9) blocks.emplace_back("encoder_attn");
    for (const std::string& block : blocks) {
      for (const char* name : {".q_proj", ".k_proj", ".v_proj", ".out_proj"}) s.linear(layer + block + name, 12, 12);
      s.norm(layer + block + "_layer_norm", 12);
    }
    s.linear(layer + "fc1", ffn, 12);
    s.linear(layer + "fc2", 12, ffn);
    s.norm(layer + "final_layer_norm", 12);
  }
  s.norm("model.decoder.layernorm", 12);
  s.linear("class_labels_classifier", 4, 12);
  for (const char* layer : {"0", "1"}) s.linear(std::string("bbox_predictor.layers.") + layer, 12, 12);
  s.linear("bbox_predictor.layers.2", 4, 12);
  return s;
}

TEST(DetectionOptions, ABackboneHasTheSizesOfTheConfig) {
  const Resolved resolved(tiny_detector());
  const Input& input = resolved.model.stacks[0].input;
  const Backbone& backbone = *input.backbone;
  EXPECT_EQ(backbone.mask, "pixel_mask");
  EXPECT_EQ(backbone.stem.stride, 2);
  ASSERT_EQ(backbone.stages.size(), 2);
  const ResidualBlock& last = backbone.stages[1][0];
  ASSERT_EQ(last.convolutions.size(), 3);
  EXPECT_THAT(last.convolutions[1].kernel.shape, ElementsAre(4, 4, 3, 3));
  EXPECT_EQ(last.convolutions[0].stride, 1);
  EXPECT_EQ(last.convolutions[1].stride, 2);
  EXPECT_EQ(last.shortcut->stride, 2);
  EXPECT_EQ(backbone.stages[0][0].shortcut->stride, 1);
  EXPECT_EQ(backbone.channels_of(0), 8);
  EXPECT_THAT(backbone.cells(70, 49), ElementsAre(9, 7));
  EXPECT_TRUE(input.grid && !input.grid->rows && input.adds_positions() && !input.reads_images());
}

TEST(DetectionOptions, ValuesAreProjectedApartFromWhatHasPositions) {
  const Resolved resolved(tiny_detector());
  const Stack& decoder = resolved.model.stacks[1];
  EXPECT_TRUE(resolved.model.stacks[0].layers[0].attention.values_apart);
  EXPECT_TRUE(decoder.layers[0].attention.values_apart && decoder.layers[0].cross->values_apart);
  EXPECT_THAT(decoder.input.queries->shape, ElementsAre(5, 12));
  EXPECT_EQ(decoder.input.queries->role, Role::PositionEmbedding);
  EXPECT_EQ(decoder.input.queries->units, 5);
}

TEST(DetectionOptions, ALearnedGridHasTwoTables) {
  Synthetic learned = tiny_detector();
  learned.config["position_embedding_type"] = "learned";
  for (const char* name : {"row", "column"})
    learned.add(std::string("model.position_embedding.") + name + "_embeddings.weight", {50, 6});
  const Resolved resolved(learned);
  EXPECT_THAT(resolved.model.stacks[0].input.grid->columns->shape, ElementsAre(50, 6));
  learned.config["position_embedding_type"] = "v2";
  EXPECT_THAT(refusal(learned, Reason::ModelUnreadable), HasSubstr("v2"));
}

TEST(DetectionOptions, BoxesAreMadeByLinearsOfWhichTheLastHasFourOutputs) {
  const Resolved resolved(tiny_detector());
  const Head& boxes = resolved.model.heads[1];
  EXPECT_THAT(boxes.outputs, ElementsAre("pred_boxes"));
  EXPECT_EQ(boxes.as<BoxesSpec>()->layers.size(), 3);
  EXPECT_EQ(boxes.scores(), 4);
  Synthetic wide = tiny_detector();
  wide.linear("bbox_predictor.layers.2", 5, 12);
  EXPECT_THAT(refusal(wide, Reason::ModelUnreadable), HasSubstr("has shape [5, 12], expected [4, 12]"));
}

TEST(DetectionOptions, NamesOfTimmAreReadByTheNameOfTheBackbone) {
  Synthetic named = tiny_detector();
  named.config.erase("backbone_config");
  named.config["backbone"] = "resnet50";
  EXPECT_THAT(refusal(named, Reason::ModelUnreadable), HasSubstr("has shape [4, 3, 7, 7], expected [64, 3, 7, 7]"));
  named.config["backbone"] = "resnet50d";
  EXPECT_THAT(refusal(named, Reason::UnknownArchitecture), HasSubstr("resnet101 and resnet152 are served"));
}

TEST(DetectionOptions, WhatIsNotServedIsRefusedByName) {
  const auto refused = [](const auto& change, Reason reason = Reason::UnknownArchitecture) {
    Synthetic detector = tiny_detector();
    change(detector.config);
    return refusal(detector, reason);
  };
  EXPECT_THAT(refused([](auto& config) { config["auxiliary_loss"] = true; }), HasSubstr("auxiliary_loss"));
  EXPECT_THAT(refused([](auto& config) { config["backbone_config"]["model_type"] = "swin"; }), HasSubstr("ResNet"));
  EXPECT_THAT(refused([](auto& config) {
                config["backbone_config"]["out_features"] = {"stage1"};
                config["backbone_config"]["stage_names"] = {"stem", "stage1", "stage2"};
              }),
              HasSubstr("not those of its last stage"));
  EXPECT_THAT(refused([](auto& config) { config["architectures"] = {"DetrForSegmentation"}; }),
              HasSubstr("the features of four stages"));
  EXPECT_THAT(refused([](auto& config) { config["d_model"] = 10; }, Reason::ModelUnreadable),
              HasSubstr("a width of 10, expected a multiple of 4"));
}

TEST(DetectionOptions, SizesThatCannotBeAreRefused) {
  const auto refused = [](const std::string& backbone) {
    return refusal(tiny_detector(), Reason::ModelUnreadable,
                   "extends: detr\nstacks: {encoder: {input: {backbone: {" + backbone + "}}}}\n");
  };
  EXPECT_THAT(refused("stem: {size: 8}"), HasSubstr("a kernel of 8 pixels, expected an odd number"));
  EXPECT_THAT(refused("stages: 17"), HasSubstr("17 stages, expected at most 16"));
  EXPECT_THAT(refused("blocks: 257"), HasSubstr("257 blocks, expected at most 256"));
  EXPECT_THAT(refused("block: {stride: 65}"), HasSubstr("65 stride, expected at most 64"));
}

}  // namespace
}  // namespace pm::policy
