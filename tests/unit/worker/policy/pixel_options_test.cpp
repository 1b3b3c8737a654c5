// SPDX-License-Identifier: Apache-2.0
// Options of the head that fills in pixels, and of tables that have one row for all tokens, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// ViT with one layer, for images of 4 x 4 pixels in patches of 2 x 2, with a mask token or without.
Synthetic tiny_painter(bool masks = true) {
  Synthetic s;
  s.config = {{"model_type", "vit"},      {"architectures", {"ViTForMaskedImageModeling"}},
              {"hidden_size", 12},        {"num_hidden_layers", 1},
              {"num_attention_heads", 3}, {"intermediate_size", 7},
              {"image_size", 4},          {"patch_size", 2},
              {"encoder_stride", 2}};
  const std::string at = "vit.embeddings.", layer = "vit.encoder.layer.0.";
  s.add(at + "cls_token", {1, 1, 12});
  if (masks) s.add(at + "mask_token", {1, 1, 12});
  s.add(at + "position_embeddings", {1, 5, 12});
  s.add(at + "patch_embeddings.projection.weight", {12, 3, 2, 2});
  s.add(at + "patch_embeddings.projection.bias", {12});
  for (const char* name :
       {"attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense"})
    s.linear(layer + name, 12, 12);
  s.linear(layer + "intermediate.dense", 7, 12);
  s.linear(layer + "output.dense", 12, 7);
  for (const char* name : {"layernorm_before", "layernorm_after"}) s.norm(layer + name, 12);
  s.norm("vit.layernorm", 12);
  s.add("decoder.0.weight", {12, 12, 1, 1});
  s.add("decoder.0.bias", {12});
  return s;
}

TEST(PixelOptions, EachPatchGivesThePixelsOfASquare) {
  const Resolved resolved(tiny_painter());
  const Head& head = resolved.model.heads.at(0);
  EXPECT_THAT(head.outputs, ElementsAre("reconstruction"));
  EXPECT_EQ(head.as<PixelShuffleSpec>()->size, 2);
  EXPECT_EQ(head.scores(), 12);
  EXPECT_TRUE(resolved.model.stacks[0].input.mask_token);
  EXPECT_FALSE(Resolved(tiny_painter(false)).model.stacks[0].input.mask_token);
}

TEST(PixelOptions, SizesThatCannotBeAreRefused) {
  const auto refused = [](const std::string& key, const nlohmann::json& value,
                          Reason reason = Reason::ModelUnreadable) {
    Synthetic painter = tiny_painter();
    painter.config[key] = value;
    return refusal(painter, reason);
  };
  EXPECT_THAT(refused("encoder_stride", 4), HasSubstr("has shape [12, 12, 1, 1], expected [48, 12, 1, 1]"));
  EXPECT_THAT(refused("encoder_stride", 1025), HasSubstr("squares of 1025 pixels with 3 channels"));
  EXPECT_THAT(refused("image_size", {4, 8}, Reason::UnknownArchitecture), HasSubstr("patches are no square"));
}

/// The reader of DPR with one layer.
Synthetic tiny_reader() {
  Synthetic s;
  s.config = {{"model_type", "dpr"},    {"architectures", {"DPRReader"}}, {"hidden_size", 12},
              {"num_hidden_layers", 1}, {"num_attention_heads", 3},       {"intermediate_size", 7},
              {"vocab_size", 11},       {"max_position_embeddings", 9}};
  const std::string at = "span_predictor.encoder.bert_model.", layer = at + "encoder.layer.0.";
  s.add(at + "embeddings.word_embeddings.weight", {11, 12});
  s.add(at + "embeddings.position_embeddings.weight", {9, 12});
  s.add(at + "embeddings.token_type_embeddings.weight", {2, 12});
  s.norm(at + "embeddings.LayerNorm", 12);
  for (const char* name :
       {"attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"})
    s.linear(layer + name, 12, 12);
  s.linear(layer + "intermediate.dense", 7, 12);
  s.linear(layer + "output.dense", 12, 7);
  for (const char* name : {"attention.output.LayerNorm", "output.LayerNorm"}) s.norm(layer + name, 12);
  s.linear("span_predictor.qa_outputs", 2, 12);
  s.linear("span_predictor.qa_classifier", 1, 12);
  return s;
}

TEST(TableOptions, ATableWithoutAnInputHasOneRowForAllTokens) {
  const Resolved resolved(tiny_reader());
  const IndexTable& table = resolved.model.stacks[0].input.tables.at(0);
  EXPECT_EQ(table.input, "");
  EXPECT_EQ(table.row_if_absent(), 0);
  EXPECT_EQ(table.key(), "row.0");
  const auto refused = [](const std::string& option) {
    return refusal(tiny_reader(), Reason::UnsupportedPolicy,
                   "extends: dpr\nstacks: {reader: {input: {tables: [{from: token_type_embeddings, rows: 2, " + option +
                       "}]}}}\n");
  };
  EXPECT_THAT(refused("column: 0"), HasSubstr("one row for all tokens"));
  EXPECT_THAT(refused("skip_if_absent: true"), HasSubstr("one row for all tokens"));
}

}  // namespace
}  // namespace pm::policy
