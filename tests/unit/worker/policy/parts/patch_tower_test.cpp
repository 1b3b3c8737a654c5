// SPDX-License-Identifier: Apache-2.0
// Tests decoders that read images of any size among their tokens: towers of patches, rotary axes and deep projectors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t hidden = 16, width = 8, inner = 5, vocabulary = 11, square = 4 * width;

void add_merger(Synthetic& model, const std::string& name, int64_t normed) {
  model.norm(name + "norm", normed);
  model.linear(name + "linear_fc1", square, square);
  model.linear(name + "linear_fc2", hidden, square);
}

/// Qwen3-VL of two layers of text, and two of a tower whose first one has a deep projector.
Synthetic tiny_qwen3_vl() {
  Synthetic model;
  model.config = {{"model_type", "qwen3_vl"},
                  {"architectures", {"Qwen3VLForConditionalGeneration"}},
                  {"image_token_id", 3},
                  {"text_config",
                   {{"model_type", "qwen3_vl_text"},
                    {"hidden_size", hidden},
                    {"num_hidden_layers", 2},
                    {"num_attention_heads", 2},
                    {"num_key_value_heads", 2},
                    {"head_dim", 8},
                    {"intermediate_size", 10},
                    {"vocab_size", vocabulary},
                    {"rope_parameters", {{"rope_type", "default"}, {"mrope_section", {2, 1, 1}}}},
                    {"max_position_embeddings", 32}}},
                  {"vision_config",
                   {{"depth", 2},
                    {"hidden_size", width},
                    {"num_heads", 2},
                    {"intermediate_size", inner},
                    {"patch_size", 2},
                    {"num_position_embeddings", 9},
                    {"deepstack_visual_indexes", {0}}}}};
  const std::string text = "model.language_model.", tower = "model.visual.";
  model.add(text + "embed_tokens.weight", {vocabulary, hidden});
  model.add(text + "norm.weight", {hidden});
  model.add("lm_head.weight", {vocabulary, hidden});
  for (const char* number : {"0.", "1."}) {
    const std::string layer = text + "layers." + number;
    for (const char* name : {"input_layernorm", "post_attention_layernorm"})
      model.add(layer + name + ".weight", {hidden});
    for (const char* name : {"q_norm", "k_norm"}) model.add(layer + "self_attn." + name + ".weight", {8});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      model.linear(layer + "self_attn." + name, hidden, hidden, false);
    for (const char* name : {"gate_proj", "up_proj"}) model.linear(layer + "mlp." + name, 10, hidden, false);
    model.linear(layer + "mlp.down_proj", hidden, 10, false);
    const std::string block = tower + "blocks." + number;
    for (const char* name : {"norm1", "norm2"}) model.norm(block + name, width);
    model.linear(block + "attn.qkv", 3 * width, width);
    model.linear(block + "attn.proj", width, width);
    model.linear(block + "mlp.linear_fc1", inner, width);
    model.linear(block + "mlp.linear_fc2", width, inner);
  }
  model.add(tower + "patch_embed.proj.weight", {width, 3, 2, 2, 2});
  model.add(tower + "patch_embed.proj.bias", {width});
  model.add(tower + "pos_embed.weight", {9, width});
  add_merger(model, tower + "merger.", width);
  add_merger(model, tower + "deepstack_merger_list.0.", square);
  return model;
}

TEST(PatchTower, ReadsImagesOfAnySizeBeforeADecoderOfSeveralAxes) {
  const Resolved resolved(tiny_qwen3_vl());
  const Model& model = resolved.model;
  ASSERT_EQ(model.stacks.size(), 2u);
  const Stack &tower = model.stacks[0], &text = model.stacks[1];
  ASSERT_TRUE(tower.input.patch_grid);
  EXPECT_EQ(tower.input.patch_grid->merge, 2);
  EXPECT_EQ(tower.input.patch_grid->window, 0);
  EXPECT_FALSE(tower.input.reads_images()) << "which have one size";
  EXPECT_THAT(tower.layers[0].attention.rotary->axes->of_frequency, ElementsAre(0, 1));
  EXPECT_THAT(tower.layers[0].attention.rotary->axes->exponents, ElementsAre(0, 0));
  EXPECT_EQ(tower.output.image_projector->merged, 4);
  EXPECT_FALSE(tower.output.image_projector->norm_merged);
  ASSERT_EQ(tower.output.deep_projectors.size(), 1u);
  EXPECT_EQ(tower.output.deep_projectors[0].layer, 0);
  EXPECT_TRUE(tower.output.deep_projectors[0].projector.norm_merged);
  EXPECT_EQ(text.input.images->rows, 0);
  EXPECT_EQ(text.input.images->deepstack, 1);
  EXPECT_EQ(rotary_axes(text), 3);
  EXPECT_THAT(text.layers[1].attention.rotary->axes->of_frequency, ElementsAre(0, 1, 2, 0));
  EXPECT_THAT(model.not_loaded, IsEmpty());
  EXPECT_EQ(resolved.param("vision.output.deep_projectors.0.first.weight").tensor->name,
            "model.visual.deepstack_merger_list.0.linear_fc1.weight");
}

TEST(PatchTower, TensorsThatAreMissingOrReadByNothingAreRefused) {
  for (const char* name : {"model.visual.pos_embed.weight", "model.visual.merger.linear_fc2.bias",
                           "model.visual.blocks.1.attn.qkv.bias", "model.visual.deepstack_merger_list.0.norm.weight"}) {
    Synthetic model = tiny_qwen3_vl();
    model.tensors.erase(name);
    EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr(name));
  }
  for (const char* name : {"model.visual.merger.more", "model.visual.blocks.2.norm1.weight",
                           "model.visual.deepstack_merger_list.1.norm.weight"}) {
    Synthetic model = tiny_qwen3_vl();
    model.add(name, {3});
    EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr(name));
  }
}

TEST(PatchTower, SettingsThatDoNotFitAreRefused) {
  for (const auto& [key, value, why] : std::vector<std::tuple<const char*, json, const char*>>{
           {"/vision_config/num_position_embeddings", 8, "the table of positions has 8 rows"},
           {"/vision_config/spatial_merge_size", 0, "squares have a side of 0 patches"},
           {"/vision_config/deepstack_visual_indexes", {1, 0}, "the layers of deepstack are [1,0]"},
           {"/vision_config/deepstack_visual_indexes", {2}, "reads the states behind layer 2 of a tower of 2 layers"},
           {"/text_config/rope_parameters/mrope_section", {2, -1, 1}, "the sections of rotary axes are [2,-1,1]"},
           {"/text_config/rope_parameters/mrope_section", json::array(), "the sections of rotary axes are []"}}) {
    Synthetic model = tiny_qwen3_vl();
    model.config[json::json_pointer(key)] = value;
    EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr(why)) << key;
  }
}

TEST(PatchTower, SectionsOfFrequenciesFollowEachOtherInQwen2) {
  Synthetic model = tiny_qwen3_vl();
  model.config["model_type"] = "qwen2_5_vl";
  model.config["architectures"] = {"Qwen2_5_VLForConditionalGeneration"};
  model.config["text_config"]["model_type"] = "qwen2_5_vl_text";
  std::erase_if(model.tensors, [](const auto& entry) {
    return entry.first.starts_with("model.visual.") || entry.first.ends_with("_norm.weight");
  });
  model.config.erase("vision_config");
  for (const char* number : {"0.", "1."})
    for (const char* name : {"q_proj", "k_proj", "v_proj"})
      model.add(std::string("model.language_model.layers.") + number + "self_attn." + name + ".bias", {hidden});
  const Resolved resolved(model);
  EXPECT_THAT(resolved.model.stacks[0].layers[0].attention.rotary->axes->of_frequency, ElementsAre(0, 0, 1, 2));
  model.config["text_config"]["rope_parameters"]["mrope_section"] = {2, 1, 2};
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("have 5 frequencies, the rotary dimensions 4"));
}

}  // namespace
}  // namespace pm::policy
