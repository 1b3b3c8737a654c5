// SPDX-License-Identifier: Apache-2.0
// The options of sparse attention, on tiny checkpoints: what a policy says is what the model has.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string bert_with(const std::string& attn, const std::string& more = "") {
  return "extends: bert\n" + more + "stacks: {encoder: {attn: {" + attn + "}}}\n";
}

constexpr const char* global = "global_q: self.query_global, global_k: self.key_global, global_v: self.value_global";

Synthetic with_global_projections() {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l)
    for (const char* name : {"query_global", "key_global", "value_global"})
      bert.linear("bert.encoder.layer." + std::to_string(l) + ".attention.self." + name, 20, 20);
  return bert;
}

std::string window(const std::string& size) { return "sliding_window: {size: " + size + ", " + global + "}"; }

TEST(Patterns, AWindowHasProjectionsOfItsOwnForGlobalTokens) {
  const Resolved resolved(with_global_projections(), bert_with(window("6")));
  const auto& attention = resolved.model.stacks[0].layers[1].attention;
  EXPECT_EQ(std::get<SlidingWindow>(attention.pattern).size, 6);
  for (const auto& [name, role, units] : {std::tuple{"global_q", Role::QueryWeight, 5},
                                          {"global_k", Role::KeyWeight, 20},
                                          {"global_v", Role::ValueWeight, 20}}) {
    const Param& param = resolved.param("encoder.layers.1.attn." + std::string(name) + ".weight");
    EXPECT_EQ(param.role, role);
    EXPECT_EQ(param.units, units) << "whole heads of every rank";
    EXPECT_THAT(param.shape, ElementsAre(20, 20));
    EXPECT_NE(resolved.param("encoder.layers.1.attn." + std::string(name) + ".bias").tensor, nullptr);
  }
  EXPECT_EQ(resolved.model.metadata.stacks[0].query_block, 32);
}

TEST(Patterns, AWindowIsANumberOrOnePerLayer) {
  Synthetic bert = with_global_projections();
  const auto sizes = [&](nlohmann::json given) {
    bert.config["attention_window"] = std::move(given);
    const Resolved resolved(bert, bert_with(window("\"attention_window ?? 4\"")));
    std::vector<int64_t> all;
    for (const Layer& layer : resolved.model.stacks[0].layers)
      all.push_back(std::get<SlidingWindow>(layer.attention.pattern).size);
    return all;
  };
  EXPECT_THAT(sizes(nullptr), ElementsAre(4, 4));
  EXPECT_THAT(sizes(8), ElementsAre(8, 8));
  EXPECT_THAT(sizes({2, 512}), ElementsAre(2, 512));
  const auto refused = [&](nlohmann::json given) {
    bert.config["attention_window"] = std::move(given);
    return refusal(bert, Reason::ModelUnreadable, bert_with(window("\"attention_window ?? 4\"")));
  };
  EXPECT_THAT(refused(7), HasSubstr("config.json gives a window of 7 tokens, expected an even number"));
  EXPECT_THAT(refused(0), HasSubstr("config.json gives a window of size = 0, expected 2 to 1048576"));
  EXPECT_THAT(refused({4}), HasSubstr("config.json gives [4] for layer 1, expected a number or one per layer"));
  EXPECT_THAT(refused({4, "wide"}), HasSubstr("for layer 1, expected a number or one per layer"));
}

TEST(Patterns, AWindowNeedsASizeAndThreeProjections) {
  EXPECT_THAT(refusal(with_global_projections(), Reason::UnsupportedPolicy,
                      bert_with(std::string("sliding_window: {") + global + "}")),
              HasSubstr("a sliding window needs \"size\""));
  EXPECT_THAT(refusal(with_global_projections(), Reason::UnsupportedPolicy,
                      bert_with("sliding_window: {size: 4, global_k: self.key_global, global_v: self.value_global}")),
              HasSubstr("a sliding window needs \"global_q\""));
  EXPECT_THAT(refusal(tiny_bert(), Reason::ModelUnreadable, bert_with(window("4"))),
              HasSubstr("no tensor \"bert.encoder.layer.0.attention.self.key_global"));
}

TEST(Patterns, BlocksAreUsedWhenTheirConditionHolds) {
  const auto pattern = [](const std::string& blocks) {
    return Resolved(tiny_bert(), bert_with("block_sparse: {" + blocks + "}"))
        .model.stacks[0]
        .layers[0]
        .attention.pattern;
  };
  const auto found = std::get<BlockSparse>(pattern("block: 4 * 2, random: \"num_random_blocks ?? 3\""));
  EXPECT_EQ(found.block, 8);
  EXPECT_EQ(found.random, 3);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(pattern("when: false, block: 4, random: 1")));
  const auto refused = [](const std::string& blocks, Reason reason = Reason::ModelUnreadable) {
    return refusal(tiny_bert(), reason, bert_with("block_sparse: {" + blocks + "}"));
  };
  EXPECT_THAT(refused("block: 0, random: 1"), HasSubstr("blocks of size = 0, expected 1 to"));
  EXPECT_THAT(refused("block: 1, random: 0 - 1"), HasSubstr("random blocks = -1, expected 0 to"));
  EXPECT_THAT(refused("block: 4", Reason::UnsupportedPolicy), HasSubstr("block_sparse needs \"block\" and \"random\""));
}

TEST(Patterns, AClassSaysWhichTokensAreGlobal) {
  const std::string more =
      "separator: sep_token_id ?? 2\narchitectures: {BertForMaskedLM: {global_tokens: before_separator}}\n";
  const Model model = Resolved(with_global_projections(), bert_with(window("4"), more)).model;
  EXPECT_EQ(model.global_tokens, GlobalTokens::BeforeSeparator);
  EXPECT_EQ(model.separator, 2);
  EXPECT_EQ(Resolved(tiny_bert()).model.global_tokens, GlobalTokens::None);
  EXPECT_THAT(refusal(tiny_bert(), Reason::UnsupportedPolicy,
                      "extends: bert\narchitectures: {BertForMaskedLM: {global_tokens: last}}\n"),
              HasSubstr("\"global_tokens\" is \"last\"; there are none, first"));
}

TEST(Patterns, AHeadOfClassesMayHaveAnMlpAndMaskTheQuestion) {
  Synthetic bert = tiny_bert();
  bert.linear("qa.up", 37, 20);
  bert.linear("qa.down", 20, 37);
  bert.norm("qa.norm", 20);
  bert.linear("qa.classes", 2, 20);
  const std::string head =
      "heads: {qa: {at: qa., mlp: {up: up, down: down, norm: norm, act: relu}, mask_question: true, classes: "
      "classes}}\n";
  const Model model =
      Resolved(bert, "extends: bert\n" + head + "architectures: {BertForMaskedLM: {heads: [qa]}}\n").model;
  const auto& classes = *model.heads[0].as<ClassesSpec>();
  EXPECT_TRUE(classes.mask_question);
  ASSERT_TRUE(classes.mlp && classes.mlp->norm);
  EXPECT_EQ(std::get<DenseMlp>(classes.mlp->kind).activation, Activation::Relu);
  EXPECT_EQ(classes.mlp->width(), 37);
  EXPECT_EQ(std::get<DenseMlp>(classes.mlp->kind).down.weight.units, 37) << "cut by columns";
}

}  // namespace
}  // namespace pm::policy
