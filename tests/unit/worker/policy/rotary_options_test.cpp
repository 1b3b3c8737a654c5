// SPDX-License-Identifier: Apache-2.0
// Options of rotary embedding that depend on lengths, an activation with numbers of its own, and policies of a section
// of config.json, on tiny checkpoints.
#include <gmock/gmock.h>

#include <cmath>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t hidden = 8;

/// A decoder like LLaMA with 2 heads of 4, under a prefix.
Synthetic tiny_llama(const std::string& prefix = "model.") {
  Synthetic model;
  model.config = {{"model_type", "llama"},  {"architectures", {"LlamaForCausalLM"}},
                  {"vocab_size", 11},       {"hidden_size", hidden},
                  {"num_hidden_layers", 2}, {"num_attention_heads", 2},
                  {"intermediate_size", 6}, {"max_position_embeddings", 64}};
  model.add(prefix + "embed_tokens.weight", {11, hidden});
  model.add("lm_head.weight", {11, hidden});
  model.add(prefix + "norm.weight", {hidden});
  for (int l = 0; l < 2; ++l) {
    const std::string at = prefix + "layers." + std::to_string(l) + ".";
    model.add(at + "input_layernorm.weight", {hidden});
    model.add(at + "post_attention_layernorm.weight", {hidden});
    for (const char* name : {"q_proj", "k_proj", "v_proj", "o_proj"})
      model.linear(at + "self_attn." + name, hidden, hidden, false);
    model.linear(at + "mlp.gate_proj", 6, hidden, false);
    model.linear(at + "mlp.up_proj", 6, hidden, false);
    model.linear(at + "mlp.down_proj", hidden, 6, false);
  }
  return model;
}

/// As above, with rotary embedding as `rope` says.
Synthetic with_rope(const json& rope) {
  Synthetic model = tiny_llama();
  model.config["rope_parameters"] = rope;
  return model;
}

const json longrope = {{"rope_type", "longrope"},
                       {"rope_theta", 100},
                       {"short_factor", {1, 2}},
                       {"long_factor", {3, 4}},
                       {"original_max_position_embeddings", 16}};

std::string llama_with(const std::string& rotary) {
  return "extends: llama\nmodel_type: llama\nstacks: {decoder: {attn: {rotary: " + rotary + "}}}\n";
}

Rotary rotary_of(const Synthetic& model, const std::string& policy = "") {
  return *Resolved(model, policy).model.stacks[0].layers[1].attention.rotary;
}

TEST(LongRopeOptions, FactorsAndTheOriginalLengthComeFromTheScaling) {
  const Rotary rotary = rotary_of(with_rope(longrope));
  ASSERT_TRUE(rotary.long_rope.has_value());
  EXPECT_EQ(rotary.long_rope->original, 16);
  EXPECT_THAT(rotary.long_rope->short_factors, ElementsAre(1, 2));
  EXPECT_THAT(rotary.long_rope->long_factors, ElementsAre(3, 4));
  const double attention = std::sqrt(1 + std::log(64.0 / 16) / std::log(16.0));
  EXPECT_DOUBLE_EQ(rotary.long_rope->short_attention, attention);
  EXPECT_DOUBLE_EQ(rotary.long_rope->long_attention, attention);
  EXPECT_EQ(short_rope_tokens(Resolved(with_rope(longrope)).model.stacks[0]), 16);
  EXPECT_EQ(short_rope_tokens(Resolved(tiny_llama()).model.stacks[0]), 0);
}

TEST(LongRopeOptions, APolicySaysWhatTheScalingDoesNot) {
  json rope = longrope;
  rope["factor"] = 1.0;
  rope["rope_type"] = "su";  // its former name
  const LongRope found =
      *rotary_of(with_rope(rope), llama_with("{longrope: {original: max_position_embeddings // 2, long_factor: "
                                             "rope_parameters.short_factor, attention_factors: \"[2, 3]\"}}"))
           .long_rope;
  EXPECT_EQ(found.original, 32);
  EXPECT_THAT(found.long_factors, ElementsAre(1, 2));
  EXPECT_EQ(found.short_attention, 2);
  EXPECT_EQ(found.long_attention, 3);
  EXPECT_EQ(rotary_of(with_rope(rope)).long_rope->long_attention, 1) << "no factor above 1 makes texts longer";
}

TEST(LongRopeOptions, ListsOfAnotherLengthAreRefused) {
  for (const auto& [key, value] : {std::pair{"short_factor", json({1, 2, 3})},
                                   {"long_factor", json({1, 0})},
                                   {"long_factor", json("none")},
                                   {"short_factor", json()},
                                   {"original_max_position_embeddings", json(1)}}) {
    json rope = longrope;
    rope[key] = value;
    EXPECT_THAT(
        refusal(with_rope(rope), Reason::ModelUnreadable),
        HasSubstr(std::string(key) == "original_max_position_embeddings" ? "the original length of longrope is 1"
                                                                         : key))
        << value;
  }
}

TEST(QueryGrowthOptions, HaveAFactorAndALength) {
  const Rotary found = rotary_of(tiny_llama(), llama_with("{query_growth: {beta: 0.1, original: 8}}"));
  ASSERT_TRUE(found.query_growth.has_value());
  EXPECT_EQ(found.query_growth->beta, 0.1);
  EXPECT_EQ(found.query_growth->original, 8);
  EXPECT_EQ(found.query_growth->offset, 0);
  EXPECT_FALSE(rotary_of(tiny_llama(), llama_with("{query_growth: {when: false}}")).query_growth.has_value());
  EXPECT_THAT(refusal(tiny_llama(), Reason::ModelUnreadable, llama_with("{query_growth: {beta: 0.1, original: 0}}")),
              HasSubstr("query_growth has beta 0.1, original 0 and offset 0"));
  EXPECT_THAT(refusal(tiny_llama(), Reason::UnsupportedPolicy, llama_with("{query_growth: {beta: 0.1}}")),
              HasSubstr("query_growth needs"));
}

TEST(QueryGrowthOptions, HoldWithoutRotationToo) {
  const char* growth = "query_growth: {beta: 0.1, original: 8, offset: 1}}";
  const Rotary still = rotary_of(tiny_llama(), llama_with(std::string("{when: false, ") + growth));
  EXPECT_EQ(still.query_growth->offset, 1);
  EXPECT_EQ(still.scaling, (json{{"rope_type", "proportional"}, {"partial_rotary_factor", 0}}));
  EXPECT_TRUE(rotary_of(tiny_llama(), llama_with(std::string("{") + growth)).scaling.is_null());
  const Resolved neither(tiny_llama(), llama_with("{when: false, query_growth: {when: false}}"));
  EXPECT_FALSE(neither.model.stacks[0].layers[1].attention.rotary.has_value());
}

TEST(XieluOptions, ReadFourNumbersOfABlockWithoutAGate) {
  Synthetic model = tiny_llama();
  for (int l = 0; l < 2; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".mlp.";
    model.tensors.erase(at + "gate_proj.weight");
    model.add(at + "act_fn.alpha_p", {1});
    model.add(at + "act_fn.alpha_n", {1});
    model.add(at + "act_fn.beta", {});
    model.add(at + "act_fn.eps", {});
  }
  model.config["model_type"] = "apertus";
  model.config["architectures"] = {"ApertusForCausalLM"};
  model.config["rope_parameters"] = {{"rope_type", "default"}, {"rope_theta", 100}};
  for (int l = 0; l < 2; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    model.copy(at + "attention_layernorm.weight", at + "input_layernorm.weight");
    model.copy(at + "feedforward_layernorm.weight", at + "post_attention_layernorm.weight");
    model.tensors.erase(at + "input_layernorm.weight");
    model.tensors.erase(at + "post_attention_layernorm.weight");
    model.add(at + "self_attn.q_norm.weight", {4});
    model.add(at + "self_attn.k_norm.weight", {4});
  }
  const Resolved resolved(model);
  const auto& mlp = std::get<DenseMlp>(resolved.model.stacks[0].layers[1].mlp.kind);
  ASSERT_TRUE(mlp.xielu.has_value());
  EXPECT_EQ(mlp.xielu->negative.tensor->name, "model.layers.1.mlp.act_fn.alpha_n");
  EXPECT_EQ(mlp.xielu->beta.tensor->name, "model.layers.1.mlp.act_fn.beta");
  model.tensors.erase("model.layers.1.mlp.act_fn.eps");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("no tensor \"model.layers.1.mlp.act_fn.eps\""));
  EXPECT_THAT(refusal(tiny_llama(), Reason::UnsupportedPolicy,
                      "extends: llama\nmodel_type: llama\nstacks: {decoder: {mlp: {xielu: {positive: a, negative: b, "
                      "beta: c, eps: d}}}}\n"),
              HasSubstr("\"xielu\" is of a block without a gate"));
}

/// A checkpoint with a tower beside the text, whose configuration is a section.
Synthetic tiny_llava_next() {
  Synthetic model = tiny_llama("language_model.model.");
  json text = model.config;
  text.erase("architectures");
  text["eos_token_id"] = 5;
  model.config = {{"model_type", "llava_next"},
                  {"architectures", {"LlavaNextForConditionalGeneration"}},
                  {"text_config", text},
                  {"vision_config", {{"hidden_size", 4}}}};
  model.copy("language_model.lm_head.weight", "lm_head.weight");
  model.tensors.erase("lm_head.weight");
  model.add("vision_tower.embeddings.weight", {3, 4});
  model.add("multi_modal_projector.linear_1.weight", {hidden, 4});
  return model;
}

TEST(SectionOptions, ExpressionsReadTheSectionAndTowersAreNotLoaded) {
  const Resolved resolved(tiny_llava_next());
  EXPECT_EQ(resolved.model.model_type, "llava_next");
  EXPECT_EQ(resolved.model.stacks[0].positions, 64);
  EXPECT_THAT(resolved.model.eos, ElementsAre(5));
  EXPECT_THAT(resolved.model.not_loaded,
              ElementsAre("multi_modal_projector.linear_1.weight", "vision_tower.embeddings.weight"));
  EXPECT_EQ(resolved.param("heads.lm.logits.weight").tensor->name, "language_model.lm_head.weight");
}

TEST(SectionOptions, SpecialIdsOfTheWholeConfigurationComeFirst) {
  Synthetic model = tiny_llava_next();
  model.config["eos_token_id"] = {7, 8};
  EXPECT_THAT(Resolved(model).model.eos, ElementsAre(7, 8));
}

TEST(SectionOptions, TensorsThatNoTowerHasAreRefused) {
  Synthetic model = tiny_llava_next();
  model.add("audio_tower.weight", {3});
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("\"audio_tower.weight\""));
}

TEST(SectionOptions, WhatIsNoSectionIsRefused) {
  Synthetic model = tiny_llava_next();
  model.config["text_config"] = 3;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("\"text_config\" is 3, expected a section"));
}

TEST(SectionOptions, ATextOfAnotherFamilyIsRefused) {
  Synthetic model = tiny_llava_next();
  model.config["text_config"]["model_type"] = "mamba";
  EXPECT_THAT(refusal(model, Reason::UnknownArchitecture), HasSubstr("its text is of no family"));
}

}  // namespace
}  // namespace pm::policy
