// SPDX-License-Identifier: Apache-2.0
// Tests decoders that read images among their tokens: a tower by the policy of its own family, and the projector.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t hidden = 8, width = 6, vocabulary = 11;

/// LLaVA of one layer of text, and two layers of CLIP over 2 x 2 patches.
Synthetic tiny_llava() {
  Synthetic model;
  model.config = {{"model_type", "llava"},
                  {"architectures", {"LlavaForConditionalGeneration"}},
                  {"image_token_index", 3},
                  {"text_config",
                   {{"model_type", "llama"},
                    {"hidden_size", hidden},
                    {"num_hidden_layers", 1},
                    {"num_attention_heads", 2},
                    {"intermediate_size", 10},
                    {"vocab_size", vocabulary},
                    {"max_position_embeddings", 32}}},
                  {"vision_config",
                   {{"model_type", "clip_vision_model"},
                    {"hidden_size", width},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", 2},
                    {"intermediate_size", 5},
                    {"image_size", 4},
                    {"patch_size", 2}}}};
  const std::string text = "model.language_model.", tower = "model.vision_tower.vision_model.",
                    projector = "model.multi_modal_projector.";
  model.add(text + "embed_tokens.weight", {vocabulary, hidden});
  model.add(text + "norm.weight", {hidden});
  model.add("lm_head.weight", {vocabulary, hidden});
  for (const char* name : {"input_layernorm", "post_attention_layernorm"})
    model.add(text + "layers.0." + name + ".weight", {hidden});
  for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
    model.linear(text + "layers.0.self_attn." + name, hidden, hidden, false);
  for (const char* name : {"gate_proj", "up_proj"}) model.linear(text + "layers.0.mlp." + name, 10, hidden, false);
  model.linear(text + "layers.0.mlp.down_proj", hidden, 10, false);
  model.add(tower + "embeddings.class_embedding", {width});
  model.add(tower + "embeddings.patch_embedding.weight", {width, 3, 2, 2});
  model.add(tower + "embeddings.position_embedding.weight", {5, width});
  for (const char* name : {"pre_layrnorm", "post_layernorm"}) model.norm(tower + name, width);
  for (const char* number : {"0.", "1."}) {
    const std::string layer = tower + "encoder.layers." + number;
    for (const char* name : {"layer_norm1", "layer_norm2"}) model.norm(layer + name, width);
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"})
      model.linear(layer + "self_attn." + name, width, width);
    model.linear(layer + "mlp.fc1", 5, width);
    model.linear(layer + "mlp.fc2", width, 5);
  }
  model.linear(projector + "linear_1", hidden, width);
  model.linear(projector + "linear_2", hidden, hidden);
  return model;
}

TEST(ImageTower, StandsBeforeTheDecoderUpToTheStateThatIsRead) {
  const Resolved resolved(tiny_llava());
  const Model& model = resolved.model;
  ASSERT_EQ(model.stacks.size(), 2u);
  EXPECT_EQ(model.stacks[0].name, "vision");
  EXPECT_EQ(model.stacks[0].layers.size(), 1u);
  EXPECT_EQ(model.stacks[0].output.image_projector->skipped, 1);
  EXPECT_EQ(model.stacks[0].output.image_projector->activation, Activation::Gelu);
  ASSERT_TRUE(model.stacks[1].input.images);
  EXPECT_EQ(model.stacks[1].input.images->stack, "vision");
  EXPECT_EQ(model.stacks[1].input.images->token, 3);
  EXPECT_EQ(model.stacks[1].input.images->rows, 4);
  EXPECT_EQ(model.images_refused, "");
  EXPECT_EQ(resolved.param("vision.output.image_projector.first.weight").tensor->name,
            "model.multi_modal_projector.linear_1.weight");
  EXPECT_THAT(model.not_loaded, AllOf(Contains("model.vision_tower.vision_model.post_layernorm.weight"),
                                      Contains("model.vision_tower.vision_model.encoder.layers.1.mlp.fc2.bias"),
                                      Not(Contains("model.vision_tower.vision_model.encoder.layers.0.mlp.fc2.bias"))));
  ASSERT_EQ(model.metadata.stacks.size(), 2u);
  EXPECT_TRUE(model.metadata.stacks[0].media);
  EXPECT_TRUE(model.metadata.stacks[1].causal);
}

TEST(ImageTower, OtherStatesAndWholeOnesAreReadAsTheConfigurationSays) {
  Synthetic model = tiny_llava();
  model.config["vision_feature_layer"] = 2;
  model.config["vision_feature_select_strategy"] = "full";
  model.config["projector_hidden_act"] = "silu";
  const Resolved resolved(model);
  EXPECT_EQ(resolved.model.stacks[0].layers.size(), 2u);
  EXPECT_EQ(resolved.model.stacks[1].input.images->rows, 5);
  EXPECT_FALSE(resolved.model.stacks[0].output.norm) << "a state is read before the norm behind the last layer";
  EXPECT_EQ(resolved.model.stacks[0].output.image_projector->activation, Activation::Silu);
}

TEST(ImageTower, TheTextsOfAnUnknownTowerAreServed) {
  for (const auto& [key, value, why] : std::vector<std::tuple<const char*, json, const char*>>{
           {"/vision_config/model_type", "unheard_of", "unheard_of"},
           {"/vision_config/model_type", "llama", "no class that gives the states of patches"},
           {"/vision_feature_layer", {-2, -1}, "the state of the tower is [-2,-1]"},
           {"/vision_feature_layer", 3, "the state of the tower is 3"},
           {"/vision_feature_layer", 0, "the state of the tower is 0"},
           {"/image_token_index", vocabulary, "the vocabulary has 11"}}) {
    Synthetic model = tiny_llava();
    model.config[json::json_pointer(key)] = value;
    const Resolved resolved(model);
    EXPECT_THAT(resolved.model.images_refused, HasSubstr(why)) << key;
    EXPECT_EQ(resolved.model.stacks.size(), 1u);
    EXPECT_FALSE(resolved.model.stacks[0].input.images);
    EXPECT_THAT(resolved.model.not_loaded, AllOf(Contains("model.multi_modal_projector.linear_1.weight"),
                                                 Contains("model.vision_tower.vision_model.post_layernorm.bias")));
  }
}

TEST(ImageTower, TensorsThatAreMissingOrReadByNothingAreRefused) {
  for (const char* name : {"model.multi_modal_projector.linear_2.bias",
                           "model.vision_tower.vision_model.encoder.layers.0.self_attn.k_proj.weight",
                           "model.vision_tower.vision_model.encoder.layers.1.self_attn.k_proj.weight"}) {
    Synthetic model = tiny_llava();
    model.tensors.erase(name);
    EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr(name));
  }
  for (const char* name : {"model.multi_modal_projector.linear_3.weight", "model.vision_tower.vision_model.more"}) {
    Synthetic model = tiny_llava();
    model.add(name, {3});
    EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr(name));
  }
  Synthetic text = tiny_llava();
  std::erase_if(text.tensors, [](const auto& entry) { return entry.first.starts_with("model.vision_tower."); });
  EXPECT_THAT(refusal(text, Reason::ModelUnreadable),
              HasSubstr("no tensor whose name begins with \"model.vision_tower.\" or \"vision_tower.\""));
}

TEST(ImageTower, ASectionThatLacksAKeyIsRefusedWithItsLine) {
  EXPECT_THAT(refusal(tiny_llava(), Reason::UnsupportedPolicy, "extends: llava\nimages: {projector: {first: ~}}\n"),
              HasSubstr("projector needs \"first\""));
  EXPECT_THAT(refusal(tiny_llava(), Reason::UnsupportedPolicy, "extends: llava\nimages: {token: ~}\n"),
              HasSubstr("images needs \"token\""));
}

}  // namespace
}  // namespace pm::policy
