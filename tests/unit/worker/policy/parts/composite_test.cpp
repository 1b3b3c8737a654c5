// SPDX-License-Identifier: Apache-2.0
// Composites: two parts with policies of their own become one model, and what does not fit is refused with names.
#include <gmock/gmock.h>

#include <set>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// Moves the tensors of a model below a prefix, without `dropped` at the beginning of their names.
void take(Synthetic& target, const Synthetic& part, const std::string& prefix, const std::string& dropped = "") {
  for (const auto& [name, tensor] : part.tensors) {
    const std::string rest = name.starts_with(dropped) ? name.substr(dropped.size()) : name;
    target.tensors[prefix + rest] = {tensor.shape, tensor.dtype, prefix + name};
  }
}

/// A BERT of width 20 as encoder, a GPT-2 of the same width as decoder.
Synthetic bert_and_gpt2() {
  Synthetic s, bert = tiny_bert();
  std::erase_if(bert.tensors, [](const auto& entry) { return entry.first.starts_with("cls."); });
  take(s, bert, "encoder.", "bert.");
  take(s, tiny_gpt2(), "decoder.");
  s.config = {{"model_type", "encoder-decoder"}, {"architectures", {"EncoderDecoderModel"}},
              {"encoder", bert.config},          {"decoder", tiny_gpt2().config},
              {"decoder_start_token_id", 7},     {"eos_token_id", 8}};
  s.config["encoder"].erase("architectures");
  s.config["decoder"]["is_decoder"] = s.config["decoder"]["add_cross_attention"] = true;
  for (int l = 0; l < 3; ++l) {
    const std::string at = "decoder.transformer.h." + std::to_string(l) + ".";
    s.norm(at + "ln_cross_attn", 20);
    for (auto [name, out] : {std::pair{"q_attn", 20}, {"c_attn", 40}, {"c_proj", 20}}) {
      s.add(at + "crossattention." + name + ".weight", {20, out});
      s.add(at + "crossattention." + name + ".bias", {out});
    }
  }
  return s;
}

TEST(Composite, HasTheStacksOfBothPartsAndTheHeadsOfTheDecoder) {
  const Resolved resolved(bert_and_gpt2());
  const Model& model = resolved.model;
  EXPECT_EQ(model.kind, ModelKind::EncoderDecoder);
  EXPECT_EQ(model.task, Task::Generate);
  EXPECT_EQ(model.decoder_start, 7);
  EXPECT_THAT(model.eos, ElementsAre(8));
  ASSERT_EQ(model.stacks.size(), 2U);
  EXPECT_EQ(model.stacks[0].name, "encoder");
  EXPECT_EQ(model.stacks[1].name, "decoder");
  EXPECT_EQ(model.stacks[1].layers[2].cross->source, "encoder");
  EXPECT_FALSE(model.stacks[0].output.cross_projection.has_value());
  ASSERT_EQ(model.heads.size(), 1U);
  EXPECT_EQ(model.heads[0].stack, "decoder");
  EXPECT_EQ(resolved.param("heads.lm.logits.weight").shares, "decoder.token");
}

TEST(Composite, EveryParameterHasAPathOfItsOwnAndTheTensorOfItsPart) {
  Synthetic two = bert_and_gpt2();
  std::erase_if(two.tensors, [](const auto& entry) { return entry.first.starts_with("decoder."); });
  Synthetic decoder = tiny_bert();
  two.config["decoder"] = decoder.config;
  two.config["decoder"]["is_decoder"] = two.config["decoder"]["add_cross_attention"] = true;
  take(two, decoder, "decoder.");
  for (int l = 0; l < 2; ++l) {
    const std::string at = "decoder.bert.encoder.layer." + std::to_string(l) + ".crossattention.";
    for (const char* name : {"self.query", "self.key", "self.value", "output.dense"}) two.linear(at + name, 20, 20);
    two.norm(at + "output.LayerNorm", 20);
  }
  const Resolved resolved(two);
  std::set<std::string> paths;
  for (const Param* param : resolved.model.params()) {
    EXPECT_TRUE(paths.insert(param->path).second) << param->path;
    const bool encodes = param->tensor->name.starts_with("encoder.");
    EXPECT_EQ(param->path.starts_with("encoder."), encodes) << param->path << " is " << param->tensor->name;
    EXPECT_TRUE(param->stack.empty() || param->stack == (encodes ? "encoder" : "decoder")) << param->path;
    EXPECT_TRUE(param->shares.empty() || paths.contains(param->shares)) << param->path;
  }
  // both have types of tokens, and a request names those of the decoder otherwise
  EXPECT_EQ(resolved.model.stacks[0].input.tables[0].input, "token_type_ids");
  EXPECT_EQ(resolved.model.stacks[1].input.tables[0].input, "decoder_token_type_ids");
  EXPECT_EQ(resolved.model.stacks[1].layers[0].attention.mask, Mask::Causal);
}

TEST(Composite, KeysAndValuesOfCrossAttentionMayLieInOneTensor) {
  const Resolved resolved(bert_and_gpt2());
  const Param &key = resolved.param("decoder.layers.1.cross.key.weight"),
              &value = resolved.param("decoder.layers.1.cross.value.weight");
  EXPECT_EQ(key.tensor, value.tensor);
  EXPECT_THAT(key.shape, ElementsAre(20, 20));
  EXPECT_EQ(key.parts, 2);
  EXPECT_EQ(value.part, 1);
  EXPECT_TRUE(value.shares.empty());
}

TEST(Composite, APoolerIsKnownAndNotLoaded) {
  Synthetic s = bert_and_gpt2();
  s.linear("encoder.pooler.dense", 20, 20);
  const Resolved resolved(s);
  EXPECT_FALSE(resolved.model.stacks[0].output.pooler.has_value());
  EXPECT_THAT(resolved.model.not_loaded, ElementsAre("encoder.pooler.dense.bias", "encoder.pooler.dense.weight"));
}

TEST(Composite, StatesAreProjectedBetweenDifferentWidths) {
  Synthetic s = bert_and_gpt2();
  EXPECT_EQ(refusal(s, Reason::ModelUnreadable), "resolved");
  s.linear("enc_to_dec_proj", 20, 20);  // equal widths need none
  EXPECT_THAT(refusal(s, Reason::ModelUnreadable), HasSubstr("no parameter of the policy reads \"enc_to_dec_proj."));

  Synthetic wide = bert_and_gpt2();
  std::erase_if(wide.tensors, [](const auto& entry) { return entry.first.starts_with("encoder."); });
  Synthetic bert = tiny_bert();
  bert.config["hidden_size"] = wide.config["encoder"]["hidden_size"] = 25;
  std::erase_if(bert.tensors, [](const auto& entry) { return entry.first.starts_with("cls."); });
  for (auto& [name, tensor] : bert.tensors)
    for (int64_t& size : tensor.shape) size = size == 20 ? 25 : size;
  take(wide, bert, "encoder.", "bert.");
  EXPECT_THAT(refusal(wide, Reason::ModelUnreadable), HasSubstr("no tensor \"enc_to_dec_proj.weight\""));
  wide.linear("enc_to_dec_proj", 20, 25);
  const Resolved resolved(wide);
  const Param& weight = resolved.param("encoder.output.cross_projection.weight");
  EXPECT_THAT(weight.shape, ElementsAre(20, 25));
  EXPECT_EQ(weight.stack, "encoder");
  const auto of_output = [](const Part& part) { return part.stack == "encoder" && part.first == stack_output; };
  EXPECT_THAT(resolved.model.metadata.parts, Contains(testing::Truly(of_output)));
  wide.config["decoder"]["cross_attention_hidden_size"] = 25;  // then keys and values have the encoder's width
  EXPECT_THAT(refusal(wide, Reason::ModelUnreadable), AllOf(HasSubstr("crossattention.c_attn"), HasSubstr("[25, 40]")));
}

TEST(Composite, PartsThatCannotBeJoinedAreRefusedByName) {
  const auto with = [](const char* part, const nlohmann::json& config) {
    Synthetic s = bert_and_gpt2();
    s.config[part] = config;
    return s;
  };
  EXPECT_THAT(refusal(with("encoder", {{"model_type", "swin"}}), Reason::UnknownArchitecture),
              AllOf(HasSubstr("the section \"encoder\""), HasSubstr("\"swin\", for which there is no policy")));
  EXPECT_THAT(
      refusal(with("encoder", {{"model_type", "t5"}}), Reason::UnknownArchitecture),
      HasSubstr(
          "the encoder of config.json is of model_type \"t5\", which has no class that gives the states of one stack"));
  EXPECT_THAT(refusal(with("encoder", {{"model_type", "vit"}}), Reason::UnknownArchitecture),
              HasSubstr("\"vit\", which reads images; this class needs an encoder that reads tokens"));
  EXPECT_THAT(refusal(with("decoder", {{"model_type", "distilbert"}}), Reason::UnknownArchitecture),
              HasSubstr("the decoder of config.json is of model_type \"distilbert\", which has no class"));
  EXPECT_THAT(refusal(with("decoder", {{"hidden_size", 20}}), Reason::ModelUnreadable),
              AllOf(HasSubstr("no section \"decoder\" with a \"model_type\""), HasSubstr("encoder_decoder.yaml:")));
  EXPECT_THAT(refusal(with("encoder", nullptr), Reason::ModelUnreadable), HasSubstr("no section \"encoder\""));
  EXPECT_THAT(refusal(with("decoder", {{"model_type", "bert"}}), Reason::UnknownArchitecture),
              HasSubstr("BertLMHeadModel is served with is_decoder: true"));
}

TEST(Composite, ADecoderWithoutCrossAttentionIsRefused) {
  Synthetic s = bert_and_gpt2();
  s.config["decoder"]["add_cross_attention"] = false;
  std::erase_if(s.tensors, [](const auto& entry) { return entry.first.find("cross") != std::string::npos; });
  EXPECT_THAT(refusal(s, Reason::UnknownArchitecture),
              AllOf(HasSubstr("GPT2LMHeadModel has no cross-attention"), HasSubstr("add_cross_attention: true")));
}

TEST(Composite, CrossAttentionWithoutAnEncoderIsRefused) {
  for (Synthetic alone : {tiny_gpt2(), tiny_bert()}) {
    alone.config["add_cross_attention"] = true;
    EXPECT_THAT(
        refusal(alone, Reason::UnknownArchitecture),
        AllOf(HasSubstr(alone.config["architectures"][0].get<std::string>() + " with cross-attention is served"),
              HasSubstr("encoder-decoder only")));
  }
}

TEST(Composite, NamesInMessagesAreThoseOfTheCheckpoint) {
  Synthetic s = bert_and_gpt2();
  s.tensors.erase("decoder.transformer.h.1.crossattention.q_attn.bias");
  EXPECT_THAT(refusal(s, Reason::ModelUnreadable),
              HasSubstr("no tensor \"decoder.transformer.h.1.crossattention.q_attn.bias\""));
  s = bert_and_gpt2();
  s.add("encoder.extra", {3});
  EXPECT_THAT(refusal(s, Reason::ModelUnreadable), HasSubstr("reads \"encoder.extra\""));
  s = bert_and_gpt2();
  s.add("elsewhere", {3});
  EXPECT_THAT(refusal(s, Reason::ModelUnreadable),
              AllOf(HasSubstr("policies/encoder_decoder.yaml"), HasSubstr("reads \"elsewhere\"")));
}

/// A ViT of width 20 and one layer as encoder, a GPT-2 as decoder.
Synthetic vit_and_gpt2() {
  Synthetic s = bert_and_gpt2();
  std::erase_if(s.tensors, [](const auto& entry) { return entry.first.starts_with("encoder."); });
  s.config["model_type"] = "vision-encoder-decoder";
  s.config["architectures"] = {"VisionEncoderDecoderModel"};
  s.config["encoder"] = {{"model_type", "vit"},    {"hidden_size", 20},       {"num_attention_heads", 5},
                         {"num_hidden_layers", 1}, {"intermediate_size", 37}, {"image_size", 4},
                         {"patch_size", 2}};
  s.add("encoder.embeddings.cls_token", {1, 1, 20});
  s.add("encoder.embeddings.position_embeddings", {1, 5, 20});
  s.add("encoder.embeddings.patch_embeddings.projection.weight", {20, 3, 2, 2});
  s.add("encoder.embeddings.patch_embeddings.projection.bias", {20});
  const std::string at = "encoder.encoder.layer.0.";
  for (const char* name :
       {"attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense"})
    s.linear(at + name, 20, 20);
  s.norm(at + "layernorm_before", 20);
  s.norm(at + "layernorm_after", 20);
  s.linear(at + "intermediate.dense", 37, 20);
  s.linear(at + "output.dense", 20, 37);
  s.norm("encoder.layernorm", 20);
  return s;
}

TEST(Composite, AnEncoderMayReadImages) {
  const Resolved resolved(vit_and_gpt2());
  EXPECT_EQ(resolved.model.task, Task::Generate);
  EXPECT_TRUE(resolved.model.stacks[0].input.reads_images());
  EXPECT_TRUE(resolved.model.metadata.stacks[0].media);
  EXPECT_FALSE(resolved.model.metadata.stacks[1].media);
  EXPECT_FALSE(resolved.model.stacks[0].output.shows_projected);
}

TEST(Composite, TheEncoderReadsWhatTheClassNeeds) {
  Synthetic images = vit_and_gpt2();
  images.config["model_type"] = "speech-encoder-decoder";
  images.config["architectures"] = {"SpeechEncoderDecoderModel"};
  EXPECT_THAT(refusal(images, Reason::UnknownArchitecture),
              HasSubstr("reads images; this class needs an encoder that reads audio"));
  images.config["model_type"] = "encoder-decoder";
  images.config["architectures"] = {"EncoderDecoderModel"};
  EXPECT_THAT(refusal(images, Reason::UnknownArchitecture),
              HasSubstr("reads images; this class needs an encoder that reads tokens"));
  Synthetic tokens = bert_and_gpt2();
  tokens.config["model_type"] = "vision-encoder-decoder";
  tokens.config["architectures"] = {"VisionEncoderDecoderModel"};
  EXPECT_THAT(refusal(tokens, Reason::UnknownArchitecture),
              HasSubstr("reads tokens; this class needs an encoder that reads images"));
}

TEST(Composite, APolicyNamesBothPartsAndDescribesNothingOfThem) {
  const auto refused = [](const std::string& more) {
    return refusal(bert_and_gpt2(), Reason::UnsupportedPolicy, "extends: encoder_decoder\n" + more);
  };
  EXPECT_THAT(refused("compose: {decoder: ~}\n"), HasSubstr("compose needs \"decoder\""));
  EXPECT_THAT(refused("ignore: [x]\n"), HasSubstr("\"ignore\" cannot stand beside compose"));
  EXPECT_THAT(refused("compose: {third: x}\n"), HasSubstr("unknown key \"third\" in compose"));
  EXPECT_THAT(refusal(tiny_gpt2(), Reason::UnsupportedPolicy,
                      "model_type: gpt2\nkind: decoder\narchitectures: {GPT2LMHeadModel: {task: generate}}\n"),
              HasSubstr("the policy has no \"stacks\""));
}

}  // namespace
}  // namespace pm::policy
