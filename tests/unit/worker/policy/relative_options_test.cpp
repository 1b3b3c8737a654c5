// SPDX-License-Identifier: Apache-2.0
// Relative positions by content, convolutions beside layers and biases of fused parts, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

std::string bert_with(const std::string& encoder) { return "extends: bert\nstacks: {encoder: {" + encoder + "}}\n"; }

/// BERT's policy with these options of relative_content in place of its own.
std::string relative(const std::string& options) {
  const auto without = [&](const std::string& key, const std::string& value) {
    return options.find(key + ":") == std::string::npos ? key + ": " + value + ", " : "";
  };
  return bert_with("attn: {relative_content: {" + without("when", "true") + without("span", "~") +
                   without("head_vectors", "~") + options + "}}");
}

std::string content(const std::string& more) { return relative("table: /bert.rel, span: 4" + more); }

constexpr const char* both =
    ", content_to_position: {from: self.pos_key, bias: false}, "
    "position_to_content: {from: self.pos_query}";
constexpr const char* shared =
    ", content_to_position: {from: self.pos_key, shared: true}, "
    "position_to_content: {from: self.pos_query, shared: true}";

Synthetic with_table() {
  Synthetic bert = tiny_bert();
  bert.add("bert.rel.weight", {8, 20});
  return bert;
}

Synthetic with_projections() {
  Synthetic bert = with_table();
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".attention.self.";
    bert.add(at + "pos_key.weight", {20, 20});
    bert.linear(at + "pos_query", 20, 20);
  }
  return bert;
}

TEST(RelativeContents, ProjectOneTableByHeads) {
  const Resolved resolved(with_projections(), content(both));
  const auto& relative = resolved.model.stacks[0].layers[1].attention.relative_content;
  ASSERT_TRUE(relative.has_value());
  EXPECT_EQ(relative->span, 4);
  EXPECT_EQ(relative->max_distance, 0);
  const std::string at = "encoder.layers.1.attn.relative_content.";
  const Param& table = resolved.param(at + "table");
  EXPECT_EQ(table.role, Role::PositionEmbedding) << "ranks share its rows";
  EXPECT_EQ(table.shares, "encoder.layers.0.attn.relative_content.table");
  EXPECT_THAT(table.shape, ElementsAre(8, 20));
  const Param& key = resolved.param(at + "content_to_position.weight");
  EXPECT_EQ(key.role, Role::QueryWeight);
  EXPECT_EQ(key.units, 5);
  EXPECT_FALSE(relative->content_to_position->projection.bias.has_value());
  EXPECT_EQ(resolved.param(at + "position_to_content.bias").role, Role::QueryBias);
}

TEST(RelativeContents, ShareTheBlocksProjectionsBothOrNeither) {
  const Resolved resolved(with_table(), content(shared));
  const auto& relative = resolved.model.stacks[0].layers[0].attention.relative_content;
  EXPECT_TRUE(relative->content_to_position->shared && relative->position_to_content->shared);
  EXPECT_THAT(refusal(with_projections(), Reason::UnsupportedPolicy,
                      content(", content_to_position: {from: self.pos_key, shared: true}, "
                              "position_to_content: {from: self.pos_query}")),
              HasSubstr("or neither"));
}

TEST(RelativeContents, NeedATableASpanAndATerm) {
  EXPECT_THAT(refusal(with_table(), Reason::UnsupportedPolicy, content("")), HasSubstr("content_to_position"));
  EXPECT_THAT(refusal(with_table(), Reason::UnsupportedPolicy,
                      relative("table: /bert.rel, content_to_position: {from: self.pos_key, shared: true}")),
              HasSubstr("with a table or head_vectors needs \"span\""));
  EXPECT_THAT(
      refusal(with_projections(), Reason::UnsupportedPolicy, content(", content_to_position: {tie: encoder.token}")),
      HasSubstr("\"from\", or \"shared\""));
}

TEST(RelativeContents, RefuseSizesThatMakeNoSense) {
  Synthetic bert = with_table();
  const auto refused = [&](const std::string& sizes) {
    return refusal(bert, Reason::ModelUnreadable, relative("table: /bert.rel, " + sizes + shared));
  };
  EXPECT_THAT(refused("span: 0"), HasSubstr("a span of 0 relative positions, expected 1 to"));
  EXPECT_THAT(refused("span: 5"), AllOf(HasSubstr("[8, 20]"), HasSubstr("[10, 20]")));
  EXPECT_THAT(refused("span: 4, max_distance: 3"), HasSubstr("3 as the maximum distance"));
  EXPECT_EQ(refused("span: 4, max_distance: 4"), "resolved");
}

/// What XLNet has, with heads and what is within one as two axes.
Synthetic with_segments() {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".attention.";
    bert.add(at + "r", {20, 5, 4});
    for (const char* bias : {"r_bias", "w_bias", "s_bias"}) bert.add(at + bias, {5, 4});
    bert.add(at + "segments", {2, 5, 4});
  }
  return bert;
}

std::string sinusoids(const std::string& more) {
  return relative(
      "content_to_position: {from: \"=r\", layout: conv1d, bias: false, query_bias: r_bias}, "
      "content_bias: w_bias, segments: {from: \"=segments\", input: token_type_ids, query_bias: s_bias}" +
      more);
}

TEST(RelativeContents, OfSinusoidsHaveBiasesAndSegmentsByHeads) {
  const Resolved resolved(with_segments(), sinusoids(""));
  const auto& relative = resolved.model.stacks[0].layers[1].attention.relative_content;
  ASSERT_TRUE(relative.has_value() && relative->segments.has_value());
  EXPECT_FALSE(relative->table.has_value());
  EXPECT_EQ(relative->span, int64_t{1} << 20) << "no distance is clamped";
  EXPECT_EQ(relative->segments->input, "token_type_ids");
  const std::string at = "encoder.layers.1.attn.relative_content.";
  const Param& position = resolved.param(at + "content_to_position.weight");
  EXPECT_TRUE(position.conv1d);
  EXPECT_THAT(position.shape, ElementsAre(20, 20));
  for (const char* bias : {"content_to_position.query_bias", "content_bias", "segments.query_bias"}) {
    EXPECT_EQ(resolved.param(at + bias).role, Role::QueryBias) << bias;
    EXPECT_THAT(resolved.param(at + bias).shape, ElementsAre(20)) << bias;
    EXPECT_EQ(resolved.param(at + bias).units, 5) << bias;
  }
  const Param& segments = resolved.param(at + "segments");
  EXPECT_EQ(segments.role, Role::SegmentStates);
  EXPECT_THAT(segments.shape, ElementsAre(2, 20));
  EXPECT_EQ(segments.units, 5);
  EXPECT_EQ(
      Resolved(with_segments(), sinusoids(", span: 7")).model.stacks[0].layers[0].attention.relative_content->span, 7);
}

TEST(RelativeContents, MayHaveTargetsBehindTheTokens) {
  Synthetic bert = tiny_bert();
  bert.add("bert.embeddings.begin", {1, 1, 20});
  const auto with = [](const std::string& targets) {
    return bert_with("input: {targets: " + targets + "}") +
           "architectures: {BertForMaskedLM: {recompute: {target: "
           "true}}}\n";
  };
  const Resolved resolved(bert, with("{from: \"=begin\", mapping: places, hidden: unseen}"));
  const auto& targets = resolved.model.stacks[0].input.targets;
  ASSERT_TRUE(targets.has_value());
  EXPECT_EQ(targets->mapping, "places");
  EXPECT_EQ(targets->hidden, "unseen");
  EXPECT_THAT(resolved.param("encoder.targets").shape, ElementsAre(20));
  EXPECT_TRUE(resolved.model.recompute->target);
  EXPECT_EQ(resolved.model.recompute->append, -1);
  EXPECT_FALSE(resolved.model.recompute->overlap);
  EXPECT_THAT(refusal(bert, Reason::UnsupportedPolicy, with("{from: \"=begin\", mapping: places}")),
              HasSubstr("targets need \"from\", \"mapping\" and \"hidden\""));
}

TEST(RelativeContents, MayHaveSegmentsInTheOtherOrderAndAFirstTokenWithout) {
  const auto segments = [](const std::string& more, const std::string& beside) {
    return relative(
        "content_to_position: {from: \"=r\", layout: conv1d, bias: false}, segments: {from: "
        "\"=segments\", input: token_type_ids, query_bias: s_bias" +
        more + "}" + beside);
  };
  Synthetic bert = with_segments();
  const auto content = [&](const std::string& policy) {
    return *Resolved(bert, policy +
                               "ignore: [\"encoder.layer.{l}.attention.r_bias\", "
                               "\"encoder.layer.{l}.attention.w_bias\"]\n")
                .model.stacks[0]
                .layers[1]
                .attention.relative_content;
  };
  const RelativeContent plain = content(segments("", ""));
  EXPECT_FALSE(plain.class_apart || plain.segments->others_first || plain.segments->common.has_value());
  const RelativeContent other = content(segments(", common: 1 + 1, others_first: true", ", class_apart: layers == 2"));
  EXPECT_TRUE(other.class_apart && other.segments->others_first);
  EXPECT_EQ(other.segments->common, 2);
}

TEST(RelativeContents, RefuseAxesThatAreNotHeadsAndSegmentsWithoutAnInput) {
  Synthetic bert = with_segments();
  bert.add("bert.encoder.layer.1.attention.w_bias", {4, 5});
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, sinusoids("")), AllOf(HasSubstr("[4, 5]"), HasSubstr("[20]")));
  EXPECT_THAT(refusal(with_segments(), Reason::UnsupportedPolicy, sinusoids(", max_distance: 9")),
              HasSubstr("no \"max_distance\""));
  EXPECT_THAT(refusal(with_segments(), Reason::UnsupportedPolicy,
                      relative("content_to_position: {from: \"=r\", layout: conv1d, bias: false}, "
                               "segments: {from: \"=segments\", query_bias: s_bias}")),
              HasSubstr("\"input\""));
}

/// What BERT has with relative_key, and no positions beside it.
Synthetic with_vectors() {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l)
    bert.add("bert.encoder.layer." + std::to_string(l) + ".attention.self.distances.weight", {7, 4});
  return bert;
}

std::string vectors(const std::string& more, const std::string& beside = "span: 4") {
  return relative(beside + ", head_vectors: {from: self.distances" + more + "}");
}

TEST(RelativeContents, MayHaveAVectorForEachDistanceThatAllHeadsRead) {
  const Resolved resolved(with_vectors(), vectors(", both: layers == 2, scaled: layers == 3"));
  const auto& relative = resolved.model.stacks[0].layers[1].attention.relative_content;
  ASSERT_TRUE(relative.has_value() && relative->head_vectors.has_value());
  EXPECT_TRUE(relative->head_vectors->meet_keys);
  EXPECT_DOUBLE_EQ(relative->head_vectors->factor, 2) << "the root of the head size takes the scale away";
  EXPECT_FALSE(relative->content_to_position || relative->position_to_content || relative->table);
  const Param& param = resolved.param("encoder.layers.1.attn.relative_content.head_vectors");
  EXPECT_EQ(param.role, Role::DistanceVectors);
  EXPECT_THAT(param.shape, ElementsAre(7, 4));
  EXPECT_TRUE(param.shares.empty()) << "each layer has its own";
  const Resolved plain(with_vectors(), vectors(""));
  const auto& of_queries = plain.model.stacks[0].layers[0].attention.relative_content->head_vectors;
  EXPECT_FALSE(of_queries->meet_keys);
  EXPECT_DOUBLE_EQ(of_queries->factor, 1);
}

TEST(RelativeContents, RefuseVectorsOfDistancesBesideOtherRowsOrOfAnotherSize) {
  const auto refused = [](const std::string& beside) {
    return refusal(with_vectors(), Reason::UnsupportedPolicy, vectors("", beside));
  };
  EXPECT_THAT(refused("max_distance: 9"), HasSubstr("head_vectors needs \"span\""));
  EXPECT_THAT(refused("span: 4, max_distance: 9"), HasSubstr("\"head_vectors\" or \"max_distance\", not both"));
  EXPECT_THAT(refused("span: 4, table: /bert.rel"), HasSubstr("\"head_vectors\" or \"table\", not both"));
  EXPECT_THAT(refusal(with_vectors(), Reason::ModelUnreadable, vectors("", "span: 5")),
              AllOf(HasSubstr("[7, 4]"), HasSubstr("[9, 4]")));
  EXPECT_THAT(refusal(with_vectors(), Reason::ModelUnreadable, vectors("", "span: 0")),
              HasSubstr("a span of 0 relative positions"));
}

TEST(RelativeContents, AreAbsentWithoutACondition) {
  Synthetic bert = tiny_bert();
  const Resolved resolved(bert, content(", when: layers == 3" + std::string(shared)));
  EXPECT_FALSE(resolved.model.stacks[0].layers[0].attention.relative_content.has_value());
}

TEST(Branches, AreConvolutionsThatRanksShare) {
  Synthetic bert = tiny_bert();
  bert.add("bert.conv.weight", {20, 10, 3});
  bert.add("bert.conv.bias", {20});
  const auto with = [](const std::string& more) {
    return bert_with("layer: {convolution_branch: {when: l == 0, from: /bert.conv, " + more + "}}");
  };
  const Resolved resolved(bert, with("size: 3, groups: 2, act: relu"));
  ASSERT_TRUE(resolved.model.stacks[0].layers[0].branch.has_value());
  EXPECT_EQ(resolved.model.stacks[0].layers[0].branch->activation, Activation::Relu);
  EXPECT_FALSE(resolved.model.stacks[0].layers[1].branch.has_value());
  const Param& kernel = resolved.param("encoder.layers.0.branch.weight");
  EXPECT_EQ(kernel.role, Role::BranchWeight);
  EXPECT_EQ(kernel.units, 2) << "whole groups";
  EXPECT_THAT(resolved.param("encoder.layers.0.branch.bias").shape, ElementsAre(20));
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, with("size: 4, groups: 2")), HasSubstr("4 taps"));
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, with("size: 3, groups: 3")), HasSubstr("3 groups of 20"));
  bert.add("bert.conv.weight", {20, 20, 3});
  EXPECT_EQ(Resolved(bert, with("size: 3")).param("encoder.layers.0.branch.weight").units, 20);
}

TEST(FusedParts, MayHaveBiasesOfTheirOwn) {
  Synthetic gpt2 = tiny_gpt2();
  for (int l = 0; l < 3; ++l) gpt2.add("transformer.h." + std::to_string(l) + ".attn.v_bias", {20});
  const Resolved resolved(gpt2,
                          "extends: gpt2\nignore: [\"h.{l}.attn.c_attn.bias\", \"h.{l}.attn.bias\"]\nstacks: {decoder: "
                          "{attn: {qkv: {from: attn.c_attn, fused: concat, bias: false, v_bias: attn.v_bias}}}}\n");
  const Attention& attention = resolved.model.stacks[0].layers[1].attention;
  EXPECT_FALSE(attention.query.bias || attention.key.bias);
  ASSERT_TRUE(attention.value.bias.has_value());
  EXPECT_EQ(attention.value.bias->role, Role::ValueBias);
  EXPECT_EQ(attention.value.bias->units, 20);
  EXPECT_EQ(attention.value.bias->fused, Fused::None);
}

TEST(Norms, OfTheInputMayComeAfterTheProjection) {
  EXPECT_FALSE(Resolved(tiny_bert()).model.stacks[0].input.norm_projected);
  EXPECT_TRUE(Resolved(tiny_bert(), bert_with("input: {norm_projected: true}")).model.stacks[0].input.norm_projected);
}

}  // namespace
}  // namespace pm::policy
