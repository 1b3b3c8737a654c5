// SPDX-License-Identifier: Apache-2.0
// Projections whose matrices are block-diagonal, and what attention shows, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* grouped = "attn: {q: {from: self.query, groups: q_groups}, out: {from: output.dense, groups: 2}}";

std::string bert_with(const std::string& encoder, const std::string& more = "") {
  return "extends: bert\n" + more + "stacks: {encoder: {" + encoder + "}}\n";
}

/// BERT whose queries are a convolution in four groups, and whose attention's output is one in two.
Synthetic grouped_bert() {
  Synthetic bert = tiny_bert();
  bert.config["q_groups"] = 4;
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".attention.";
    bert.add(at + "self.query.weight", {20, 5, 1});
    bert.add(at + "output.dense.weight", {20, 10, 1});
  }
  return bert;
}

TEST(Projections, InGroupsAreBlockDiagonal) {
  const Resolved resolved(grouped_bert(), bert_with(grouped));
  const Param& query = resolved.param("encoder.layers.1.attn.query.weight");
  EXPECT_EQ(query.diagonal_blocks, 4);
  EXPECT_THAT(query.shape, ElementsAre(20, 5));
  EXPECT_EQ(query.units, 5) << "heads, whatever the groups";
  const Param& out = resolved.param("encoder.layers.1.attn.out.weight");
  EXPECT_EQ(out.diagonal_blocks, 2);
  EXPECT_THAT(out.shape, ElementsAre(10, 20)) << "all inputs, which ranks share, beside each other";
  EXPECT_EQ(out.units, 5);
  EXPECT_THAT(resolved.param("encoder.layers.1.attn.out.bias").shape, ElementsAre(20));
  EXPECT_EQ(resolved.param("encoder.layers.1.attn.key.weight").diagonal_blocks, 1);
  EXPECT_FALSE(query.matrix || out.matrix) << "int8 holds neither";
  EXPECT_TRUE(resolved.param("encoder.layers.1.attn.key.weight").matrix);
}

TEST(Projections, CountNoMoreThanIsStored) {
  const Resolved dense(tiny_bert()), resolved(grouped_bert(), bert_with(grouped));
  EXPECT_EQ(dense.model.metadata.parameters - resolved.model.metadata.parameters, 2 * (20 * 15 + 20 * 10));
}

TEST(Projections, RefuseGroupsThatDoNotDivideThem) {
  Synthetic bert = grouped_bert();
  for (const int groups : {3, 0, -1}) {
    bert.config["q_groups"] = groups;
    EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, bert_with(grouped)),
                AllOf(HasSubstr("the number of groups is " + std::to_string(groups)),
                      HasSubstr("a divisor of 20 inputs and 20 outputs")));
  }
  bert.config["q_groups"] = 2;
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, bert_with(grouped)), HasSubstr("[20, 5, 1], expected [20, 10]"));
}

TEST(Projections, InGroupsMayBeStoredTransposedBlockByBlock) {
  Synthetic bert = grouped_bert();
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".attention.";
    bert.add(at + "self.query.weight", {4, 5, 5});
    bert.add(at + "output.dense.weight", {2, 10, 10});
  }
  const std::string policy = bert_with(
      "attn: {q: {from: self.query, groups: 4, layout: conv1d}, out: {from: output.dense, groups: 2, layout: conv1d}}");
  const Resolved resolved(bert, policy);
  EXPECT_THAT(resolved.param("encoder.layers.1.attn.query.weight").shape, ElementsAre(20, 5));
  EXPECT_THAT(resolved.param("encoder.layers.1.attn.out.weight").shape, ElementsAre(10, 20));
  bert.add("bert.encoder.layer.1.attention.self.query.weight", {20, 5});
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, policy), HasSubstr("[20, 5], expected [4, 5, 5]"));
}

TEST(Attentions, AreProbabilitiesOrScores) {
  const auto shows = [](const std::string& attn) {
    return Resolved(tiny_bert(), bert_with(attn)).model.stacks[0].layers[0].attention.shows_scores;
  };
  EXPECT_FALSE(shows("attn: {mask: full}"));
  EXPECT_FALSE(shows("attn: {attentions: probabilities}"));
  EXPECT_TRUE(shows("attn: {attentions: scores}"));
  EXPECT_THAT(refusal(tiny_bert(), Reason::UnsupportedPolicy,
                      bert_with("attn: {attentions: scores, block_sparse: {block: 2, random: 1}}")),
              HasSubstr("of full attention only"));
}

TEST(Ignored, NamesMayHaveAnyBeginning) {
  Synthetic bert = tiny_bert();
  bert.add("bert.encoder.layer.1.output.dense.x_min", {1});
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable), HasSubstr("x_min"));
  EXPECT_EQ(refusal(bert, Reason::ModelUnreadable, "extends: bert\nignore: [\"*.x_min\"]\n"), "resolved");
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, "extends: bert\nignore: [\"*.x_max\"]\n"), HasSubstr("x_min"));
}

}  // namespace
}  // namespace pm::policy
