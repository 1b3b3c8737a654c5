// SPDX-License-Identifier: Apache-2.0
// Stacks of dense vectors and stacks that join two others, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void add_attention(Synthetic& s, const std::string& at, const std::string& inner) {
  for (const char* name : {"query", "key", "value"}) s.linear(at + inner + name, 20, 20);
  s.linear(at + "output.dense", 20, 20);
  s.norm(at + "output.LayerNorm", 20);
}

void add_mlp(Synthetic& s, const std::string& up, const std::string& down) {
  s.linear(up + ".dense", 37, 20);
  s.linear(down + ".dense", 20, 37);
  s.norm(down + ".LayerNorm", 20);
}

Synthetic tiny_lxmert() {
  Synthetic s;
  s.config = {{"model_type", "lxmert"}, {"architectures", {"LxmertForPreTraining"}},
              {"hidden_size", 20},      {"num_attention_heads", 5},
              {"l_layers", 2},          {"r_layers", 1},
              {"x_layers", 1},          {"intermediate_size", 37},
              {"vocab_size", 101},      {"max_position_embeddings", 40}};
  const std::string at = "lxmert.encoder.";
  s.add("lxmert.embeddings.word_embeddings.weight", {101, 20});
  s.add("lxmert.embeddings.position_embeddings.weight", {40, 20});
  s.add("lxmert.embeddings.token_type_embeddings.weight", {2, 20});
  s.norm("lxmert.embeddings.LayerNorm", 20);
  for (const auto& [part, width] : {std::pair{"visn", 11}, {"box", 4}}) {
    s.linear(at + "visn_fc." + part + "_fc", 20, width);
    s.norm(at + "visn_fc." + part + "_layer_norm", 20);
  }
  for (const char* layer : {"layer.0.", "layer.1.", "r_layers.0."}) {
    add_attention(s, at + layer + "attention.", "self.");
    add_mlp(s, at + layer + "intermediate", at + layer + "output");
  }
  const std::string both = at + "x_layers.0.";
  add_attention(s, both + "visual_attention.", "att.");
  for (const char* stream : {"lang", "visn"}) {
    add_attention(s, both + stream + "_self_att.", "self.");
    add_mlp(s, both + stream + "_inter", both + stream + "_output");
  }
  s.linear("lxmert.pooler.dense", 20, 20);
  s.linear("cls.predictions.transform.dense", 20, 20);
  s.norm("cls.predictions.transform.LayerNorm", 20);
  s.add("cls.predictions.bias", {101});
  s.linear("cls.seq_relationship", 2, 20);
  s.linear("answer_head.logit_fc.0", 40, 20);
  s.norm("answer_head.logit_fc.2", 40);
  s.linear("answer_head.logit_fc.3", 9, 40);
  s.linear("obj_predict_head.transform.dense", 20, 20);
  s.linear("obj_predict_head.decoder_dict.obj", 6, 20);
  return s;
}

/// A policy in which sections of the third stack say something else.
std::string changed(const std::string& cross_encoder) {
  return "extends: lxmert\nstacks: {cross_encoder: {" + cross_encoder + "}}\n";
}

TEST(TwoStreams, AreJoinedByOneBlockWhoseHeadsRanksShare) {
  const Resolved resolved(tiny_lxmert());
  const Stack& joined = *resolved.model.stack("cross_encoder");
  EXPECT_THAT(joined.joins, ElementsAre("language", "vision"));
  EXPECT_EQ(resolved.model.joining("vision"), &joined);
  EXPECT_EQ(resolved.model.joining("cross_encoder"), nullptr);
  const Param& query = resolved.param("cross_encoder.layers.0.co_attention.across.query.weight");
  EXPECT_EQ(query.role, Role::QueryWeight);
  EXPECT_EQ(query.units, 5);
  EXPECT_EQ(resolved.param("cross_encoder.layers.0.co_attention.mlp.up.weight").role, Role::UpWeight);
  EXPECT_EQ(resolved.param("cross_encoder.layers.0.co_attention.attn.out.weight").role, Role::OutWeight);
  EXPECT_EQ(resolved.model.metadata.stacks[2].exchanges, 1) << "of co-attention, beside those of a plain layer";
  EXPECT_EQ(resolved.model.metadata.stacks[1].exchanges, 0);
}

TEST(TwoStreams, HaveHeadsThatReadTheFirst) {
  Synthetic lxmert = tiny_lxmert();
  const Resolved resolved(lxmert);
  ASSERT_EQ(resolved.model.heads.size(), 3u);
  for (const Head& head : resolved.model.heads) EXPECT_EQ(head.stack, "cross_encoder");
  EXPECT_EQ(resolved.param("heads.mlm.logits.weight").shares, "language.token");
  EXPECT_THAT(resolved.param("heads.answer.classes.weight").shape, ElementsAre(9, 40));
  EXPECT_THAT(resolved.model.not_loaded, testing::Contains("obj_predict_head.decoder_dict.obj.weight"));
  lxmert.config["task_qa"] = false;
  EXPECT_EQ(Resolved(lxmert).model.heads.size(), 2u);
  lxmert.config["architectures"] = {"LxmertModel"};
  EXPECT_EQ(Resolved(lxmert).model.heads.size(), 0u);
}

TEST(TwoStreams, OfVectorsAreProjectedPartByPart) {
  const Resolved resolved(tiny_lxmert());
  const Vectors& vectors = resolved.model.stack("vision")->input.vectors.value();
  ASSERT_EQ(vectors.parts.size(), 2u);
  EXPECT_EQ(vectors.mask, "visual_attention_mask");
  EXPECT_EQ(vectors.parts[1].input, "visual_pos");
  const Param& projection = resolved.param("vision.vectors.visual_feats.weight");
  EXPECT_EQ(projection.role, Role::EmbeddingProjection);
  EXPECT_THAT(projection.shape, ElementsAre(20, 11));
  EXPECT_EQ(resolved.param("vision.vectors.visual_pos.norm.bias").role, Role::NormBias);
}

TEST(TwoStreams, OfAPolicyThatLacksAPartAreRefused) {
  const auto refused = [](const std::string& policy) {
    return refusal(tiny_lxmert(), Reason::UnsupportedPolicy, policy);
  };
  EXPECT_THAT(refused(changed("second: ~")), HasSubstr("the stack has no \"second\" beside \"joins\""));
  EXPECT_THAT(refused(changed("joins: ~")), HasSubstr("the stack has \"co_attention\" without \"joins\""));
  EXPECT_THAT(refused(changed("second: {mlp: ~}")), HasSubstr("\"second\" needs \"attn\" and \"mlp\""));
  EXPECT_THAT(refused(changed("input: {token: x}")), HasSubstr("has no \"input\" of its own"));
  for (const char* joins : {"[language]", "[language, language]", "[language, cross_encoder]", "[language, text]"})
    EXPECT_THAT(refused(changed(std::string("joins: ") + joins)),
                HasSubstr("needs two stacks that stand above this one"));
  const auto vectors = [&](const std::string& section) {
    return refused("extends: lxmert\nstacks: {vision: {input: {vectors: {" + section + "}}}}\n");
  };
  EXPECT_THAT(vectors("mask: ~"), HasSubstr("vectors need \"mask\" and \"parts\", a list"));
  EXPECT_THAT(vectors("parts: [{from: visn_fc}]"), HasSubstr("a part of vectors needs \"from\" and \"input\""));
  EXPECT_THAT(vectors("parts: [{from: visn_fc, input: x}, {from: box_fc, input: x}]"),
              HasSubstr("\"x\" is the input of two parts"));
}

TEST(TwoStreams, OfDifferentWidthsAreRefused) {
  EXPECT_THAT(refusal(tiny_lxmert(), Reason::ModelUnreadable, changed("hidden: 25, heads: 5")),
              HasSubstr("config.json gives states of 20 numbers in the stack \"language\" and of 25"));
  EXPECT_THAT(refusal(tiny_lxmert(), Reason::ModelUnreadable, changed("co_attention: {heads: 2, kv_heads: 1}")),
              HasSubstr("expected the same throughout a stack"));
}

}  // namespace
}  // namespace pm::policy
