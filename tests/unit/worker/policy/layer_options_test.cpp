// SPDX-License-Identifier: Apache-2.0
// Bottlenecks, stacked feed-forward blocks, inputs whose tokens are projected alone, scores whose matrix lies in two
// tensors, and layers that pool rows or make them as many as tokens again, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string bert_with(const std::string& encoder, const std::string& more = "") {
  return "extends: bert\n" + more + "stacks: {encoder: {" + encoder + "}}\n";
}

/// BERT whose blocks run on states of 10 numbers, five heads of two.
Synthetic narrow_bert(bool attention) {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".";
    bert.linear(at + "narrow", 10, 20);
    bert.norm(at + "narrow_norm", 10);
    if (attention) bert.linear(at + "read", 10, 20);
    bert.linear(at + "wide", 20, 10);
    for (const char* name : {"query", "key"}) bert.linear(at + "attention.self." + name, 10, 10);
    bert.linear(at + "attention.self.value", 10, attention ? 20 : 10);
    bert.linear(at + "attention.output.dense", 10, 10);
    bert.norm(at + "attention.output.LayerNorm", 10);
    bert.linear(at + "intermediate.dense", 37, 10);
    bert.linear(at + "output.dense", 10, 37);
    bert.norm(at + "output.LayerNorm", 10);
  }
  return bert;
}

std::string bottleneck(const std::string& more) {
  return bert_with("head_dim: 2, layer: {bottleneck: {width: 10, input: narrow, input_norm: narrow_norm, output: wide" +
                   more + "}}");
}

TEST(Bottlenecks, NarrowAllBlocksAndAreSharedByOutputs) {
  const Synthetic bert = narrow_bert(false);
  const Resolved resolved(bert, bottleneck(""));
  const Layer& layer = resolved.model.stacks[0].layers[1];
  ASSERT_TRUE(layer.bottleneck.has_value());
  EXPECT_FALSE(layer.bottleneck->wide || layer.attention.values_apart);
  const Param& input = resolved.param("encoder.layers.1.bottleneck.input.weight");
  EXPECT_EQ(input.role, Role::BottleneckWeight);
  EXPECT_EQ(input.units, 10);
  EXPECT_TRUE(input.matrix);
  EXPECT_EQ(resolved.param("encoder.layers.1.bottleneck.output.bias").units, 20);
  EXPECT_THAT(resolved.param("encoder.layers.1.attn.norm.weight").shape, ElementsAre(10));
  EXPECT_EQ(resolved.model.metadata.stacks[0].exchanges, 2);
  EXPECT_EQ(resolved.model.metadata.stacks[0].hidden, 20);
}

TEST(Bottlenecks, MayLetAttentionReadTheLayersStates) {
  const Synthetic bert = narrow_bert(true);
  const Resolved resolved(bert, bottleneck(", wide: true, attention: read"));
  EXPECT_TRUE(resolved.model.stacks[0].layers[0].attention.values_apart);
  EXPECT_THAT(resolved.param("encoder.layers.0.attn.query.weight").shape, ElementsAre(10, 10));
  EXPECT_THAT(resolved.param("encoder.layers.0.attn.value.weight").shape, ElementsAre(10, 20));
  EXPECT_THAT(refusal(bert, Reason::UnsupportedPolicy, bottleneck(", attention: read")),
              HasSubstr("reads narrow states has no \"attention\""));
}

TEST(Bottlenecks, NeedAWayInAndAWayBack) {
  EXPECT_THAT(
      refusal(tiny_bert(), Reason::UnsupportedPolicy, bert_with("layer: {bottleneck: {width: 10, input: narrow}}")),
      HasSubstr("needs \"input\" and \"output\""));
  EXPECT_THAT(refusal(tiny_bert(), Reason::ModelUnreadable,
                      bert_with("layer: {bottleneck: {width: 0, input: narrow, output: wide}}")),
              HasSubstr("width is 0"));
  EXPECT_FALSE(Resolved(tiny_bert(), bert_with("layer: {bottleneck: {when: layers == 9, input: a, output: b}}"))
                   .model.stacks[0]
                   .layers[0]
                   .bottleneck.has_value());
}

/// BERT with as many heads that convolve as attend.
Synthetic convolving_bert() {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l) {
    const std::string at = "bert.encoder.layer." + std::to_string(l) + ".attention.";
    bert.add(at + "self.depth.weight", {20, 1, 3});
    bert.add(at + "self.point.weight", {10, 20, 1});
    bert.add(at + "self.point_bias", {10, 1});
    bert.linear(at + "self.taps", 15, 10);
    for (const char* name : {"query", "key", "value", "neighbors"}) bert.linear(at + "self." + name, 10, 20);
  }
  return bert;
}

std::string convolving(const std::string& size) {
  return bert_with(
      "head_dim: 2, attn: {span_convolution: {size: " + size +
      ", depthwise: self.depth, pointwise: {from: self.point, bias: [self.point_bias]}, kernel: self.taps, "
      "values: self.neighbors}}");
}

TEST(SpanConvolutions, AreSharedByHeads) {
  const Resolved resolved(convolving_bert(), convolving("3"));
  const auto& made = resolved.model.stacks[0].layers[1].attention.span_convolution;
  ASSERT_TRUE(made.has_value());
  EXPECT_EQ(made->size, 3);
  const std::string at = "encoder.layers.1.attn.";
  const Param& kernel = resolved.param(at + "span_convolution.kernel.weight");
  EXPECT_EQ(kernel.role, Role::OutWeight) << "by its inputs, which are heads";
  EXPECT_THAT(kernel.shape, ElementsAre(15, 10));
  EXPECT_EQ(resolved.param(at + "span_convolution.pointwise.bias").role, Role::QueryBias);
  EXPECT_EQ(resolved.param(at + "span_convolution.values.weight").units, 5);
  EXPECT_EQ(resolved.param(at + "out.weight").segments, 2);
  EXPECT_EQ(resolved.model.metadata.stacks[0].exchanges, 1);
  EXPECT_TRUE(reads_padding(resolved.model.stacks[0]));
}

TEST(SpanConvolutions, HaveAnOddNumberOfTapsAndAllParts) {
  EXPECT_THAT(refusal(convolving_bert(), Reason::ModelUnreadable, convolving("4")), HasSubstr("kernels of 4 taps"));
  EXPECT_THAT(refusal(convolving_bert(), Reason::ModelUnreadable, convolving("5")), HasSubstr("[20, 1, 5]"));
  EXPECT_THAT(refusal(convolving_bert(), Reason::UnsupportedPolicy,
                      bert_with("attn: {span_convolution: {size: 3, depthwise: self.depth}}")),
              HasSubstr("needs \"pointwise\""));
}

TEST(StackedMlps, AreNumberedInTheirNames) {
  Synthetic bert = tiny_bert();
  const int64_t ffn = 37;
  for (int l = 0; l < 2; ++l) {
    for (int block = 0; block < 2; ++block) {
      const std::string at = "bert.encoder.layer." + std::to_string(l) + ".ffn." + std::to_string(block) + ".";
      bert.linear(at + "up", ffn, 20);
      bert.linear(at + "down", 20, ffn);
      bert.norm(at + "norm", 20);
    }
  }
  const auto stacked = [](const std::string& count) {
    return bert_with("stacked_mlp: {count: " + count + ", at: \"ffn.{l}.\", up: up, down: down, norm: norm}");
  };
  const Resolved resolved(bert, stacked("2"));
  ASSERT_EQ(resolved.model.stacks[0].layers[1].stacked.size(), 2U);
  EXPECT_EQ(resolved.param("encoder.layers.1.stacked.0.down.weight").tensor->name,
            "bert.encoder.layer.1.ffn.0.down.weight");
  EXPECT_EQ(resolved.param("encoder.layers.1.stacked.0.down.weight").units, ffn);
  EXPECT_EQ(resolved.model.metadata.stacks[0].exchanges, 2);
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, stacked("65")), HasSubstr("65 stacked feed-forward blocks"));
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable, stacked("-1")), HasSubstr("count is -1"));
  EXPECT_EQ(Resolved(tiny_bert(), stacked("0")).model.stacks[0].layers[0].stacked.size(), 0U);
}

/// BERT whose trigrams of embeddings of 6 numbers are projected.
Synthetic factorized_bert() {
  Synthetic bert = tiny_bert();
  bert.linear("bert.embeddings.project", 20, 3 * 6);
  bert.add("bert.embeddings.word_embeddings.weight", {101, 6});
  bert.add("cls.predictions.others.weight", {14, 101});
  return bert;
}

constexpr const char* trigrams = "embedding: 6, input: {trigram: true, project_tokens: true, projection: project}";
constexpr const char* concat = "heads: {mlm: {logits: {concat: {from: others, layout: conv1d}}}}\n";

TEST(Inputs, MayProjectTrigramsBeforePositionsAreAdded) {
  const Resolved resolved(factorized_bert(), bert_with(trigrams, concat));
  EXPECT_TRUE(resolved.model.stacks[0].input.trigram && reads_padding(resolved.model.stacks[0]));
  EXPECT_THAT(resolved.param("encoder.projection.weight").shape, ElementsAre(20, 18));
  EXPECT_EQ(resolved.param("encoder.positions").shape[1], 20) << "positions are as wide as what they are added to";
}

TEST(Logits, MayHaveColumnsBehindThoseOfTheEmbedding) {
  const Resolved resolved(factorized_bert(), bert_with(trigrams, concat));
  EXPECT_EQ(resolved.param("heads.mlm.logits.weight").shares, "encoder.token");
  const Param& others = resolved.param("heads.mlm.logits.concat");
  EXPECT_THAT(others.shape, ElementsAre(101, 14));
  EXPECT_TRUE(others.conv1d && others.matrix);
  EXPECT_EQ(others.units, 101) << "ranks share the rows of both alike";
  EXPECT_THAT(refusal(tiny_bert(), Reason::ModelUnreadable, std::string("extends: bert\n") + concat),
              HasSubstr("further columns need wider states"));
}

TEST(Norms, MayHaveNoStatistics) {
  const Resolved resolved(tiny_bert(), bert_with("layer: {norm: affine}"));
  const auto& norm = resolved.model.stacks[0].layers[0].attention.norm;
  EXPECT_EQ(norm->kind, NormKind::Affine);
  EXPECT_TRUE(norm->bias) << "is read where the policy does not name it";
}

TEST(Poolers, MayHaveNoActivation) {
  const auto pooler = [](const std::string& more) {
    return *Resolved(tiny_bert(), bert_with("output: {pooler: {when: true, from: pooler.dense, " + more + "}}"))
                .model.stacks[0]
                .output.pooler;
  };
  EXPECT_FALSE(pooler("pool: first, act: \"layers == 2 ? null : 'tanh'\"").activation);
  EXPECT_EQ(pooler("pool: \"layers == 2 ? 'last' : null\", act: tanh").pool, Pool::Last);
  EXPECT_EQ(pooler("pool: first, act: relu").activation, Activation::Relu);
}

/// BERT with a weight for all queries and one for all keys of a token.
Synthetic normed_bert() {
  Synthetic bert = tiny_bert();
  for (int l = 0; l < 2; ++l)
    for (const char* name : {"q_norm", "k_norm"})
      bert.add("bert.encoder.layer." + std::to_string(l) + ".attention.self." + name + ".weight", {20});
  return bert;
}

TEST(ProjectionNorms, AreCutWithTheHeads) {
  const Resolved resolved(normed_bert(),
                          bert_with("attn: {query_norm: {from: self.q_norm, kind: rms, over: projection}, "
                                    "key_norm: {from: self.k_norm, kind: rms, eps: 0.5, over: projection}}"));
  const Attention& attention = resolved.model.stacks[0].layers[1].attention;
  ASSERT_TRUE(attention.projection_norms.has_value());
  EXPECT_FALSE(attention.query_norm || attention.key_norm);
  EXPECT_EQ(attention.projection_norms->key.eps, 0.5);
  const Param &query = resolved.param("encoder.layers.1.attn.query_norm.weight"),
              &key = resolved.param("encoder.layers.1.attn.key_norm.weight");
  EXPECT_EQ(query.role, Role::QueryBias);
  EXPECT_EQ(query.units, 5);
  EXPECT_EQ(key.role, Role::KeyBias);
  EXPECT_EQ(key.units, 20);
  EXPECT_THAT(key.shape, ElementsAre(20));
  EXPECT_EQ(resolved.model.metadata.stacks[0].exchanges, 1);
}

TEST(ProjectionNorms, OfOtherKindsAreRefused) {
  const auto refused = [](const std::string& query, const std::string& key) {
    return refusal(normed_bert(), Reason::UnsupportedPolicy,
                   bert_with("attn: {query_norm: {from: self.q_norm, " + query + "}, key_norm: {from: self.k_norm, " +
                             key + "}}"));
  };
  EXPECT_THAT(refused("kind: rms, over: projection", "kind: rms"), HasSubstr("have to be over the same"));
  EXPECT_THAT(refused("kind: layer, bias: false, over: projection", "kind: layer, bias: false, over: projection"),
              HasSubstr("has to be an RMS norm without a bias"));
}

std::string bert_with_layers(const std::string& layer) {
  return "extends: bert\nstacks: {encoder: {layer: {" + layer + "}}}\n";
}

TEST(Pooling, IsOfTheLayersThatItsConditionNames) {
  const Resolved resolved(tiny_bert(), bert_with_layers("pooling: {when: l == 1, kind: max, class_apart: true, "
                                                        "truncate: layers == 2, queries_only: true}"));
  const Stack& stack = resolved.model.stacks[0];
  EXPECT_FALSE(stack.layers[0].pooling.has_value());
  ASSERT_TRUE(stack.layers[1].pooling.has_value());
  const Pooling& pooling = *stack.layers[1].pooling;
  EXPECT_EQ(pooling.kind, PoolingKind::Max);
  EXPECT_TRUE(pooling.class_apart && pooling.truncate && pooling.queries_only);
  EXPECT_TRUE(resizes_rows(stack) && reads_padding(stack));
  for (const Layer& layer : stack.layers)
    EXPECT_TRUE(layer.attention.queries_apart) << "layers may share their weights, so all are alike";
}

TEST(Pooling, IsTheMeanOfAllByDefault) {
  const Resolved resolved(tiny_bert(), bert_with_layers("pooling: {when: l == 1}"));
  const Stack& stack = resolved.model.stacks[0];
  const Pooling& pooling = *stack.layers[1].pooling;
  EXPECT_EQ(pooling.kind, PoolingKind::Mean);
  EXPECT_FALSE(pooling.class_apart || pooling.truncate || pooling.queries_only);
  EXPECT_FALSE(stack.layers[1].attention.queries_apart);
  EXPECT_THAT(refusal(tiny_bert(), Reason::ModelUnreadable, bert_with_layers("pooling: {kind: \"'median'\"}")),
              HasSubstr("served are mean, max"));
}

TEST(Upsampling, AddsTheStatesOfAnEarlierLayer) {
  const Resolved resolved(tiny_bert(), bert_with_layers("upsampling: {when: l == 1, stride: 2 ** layers, "
                                                        "added_layer: 0, class_apart: true}"));
  const Stack& stack = resolved.model.stacks[0];
  EXPECT_FALSE(stack.layers[0].upsampling.has_value());
  ASSERT_TRUE(stack.layers[1].upsampling.has_value());
  EXPECT_EQ(stack.layers[1].upsampling->stride, 4);
  EXPECT_EQ(stack.layers[1].upsampling->added_layer, 0);
  EXPECT_TRUE(stack.layers[1].upsampling->class_apart);
}

TEST(Upsampling, RefusesWhatCannotBeAdded) {
  const auto refused = [](const std::string& options) {
    return refusal(tiny_bert(), Reason::ModelUnreadable,
                   bert_with_layers("upsampling: {when: l == 1, " + options + "}"));
  };
  EXPECT_THAT(refused("stride: 2, added_layer: 2"), HasSubstr("the states of layer 2"));
  EXPECT_THAT(refused("stride: 0, added_layer: 1"), HasSubstr("a stride of 0"));
  EXPECT_THAT(refusal(tiny_bert(), Reason::UnsupportedPolicy, bert_with_layers("upsampling: {stride: 2}")),
              HasSubstr("needs \"stride\" and \"added_layer\""));
}

}  // namespace
}  // namespace pm::policy
