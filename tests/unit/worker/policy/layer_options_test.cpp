// SPDX-License-Identifier: Apache-2.0
// Bottlenecks, stacked feed-forward blocks, inputs whose tokens are projected alone, scores whose matrix lies in two
// tensors, layers that pool rows or make them as many as tokens again, and layers that differ in their heads, reuse
// keys, read inputs of their own or have a block beside the MLP, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::AllOf;
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

// What follows are layers that differ within a stack, on tiny checkpoints of Gemma 4.

constexpr int64_t hidden = 8, columns = 6, heads = 4;

bool is_full(int layer) { return layer % 2 == 1; }

/// Four layers, every second of which has wide heads of raw keys. Of layers from `shared` on the keys are not their
/// own.
Synthetic tiny_gemma(int shared = 4) {
  Synthetic model;
  model.config = {{"model_type", "gemma4_text"},
                  {"architectures", {"Gemma4ForCausalLM"}},
                  {"vocab_size", 11},
                  {"hidden_size", hidden},
                  {"num_hidden_layers", 4},
                  {"num_attention_heads", heads},
                  {"num_key_value_heads", 2},
                  {"head_dim", 2},
                  {"global_head_dim", 6},
                  {"num_global_key_value_heads", 1},
                  {"attention_k_eq_v", true},
                  {"intermediate_size", columns},
                  {"hidden_size_per_layer_input", 0},
                  {"num_kv_shared_layers", 4 - shared},
                  {"layer_types", {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
                  {"rope_parameters",
                   {{"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 100.0}}},
                    {"full_attention", {{"rope_type", "proportional"}, {"rope_theta", 1000.0}}}}}};
  model.add("model.embed_tokens.weight", {11, hidden});
  model.add("model.norm.weight", {hidden});
  for (int l = 0; l < 4; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    const int64_t size = is_full(l) ? 6 : 2, kv_heads = is_full(l) ? 1 : 2;
    for (const char* norm : {"input", "post_attention", "pre_feedforward", "post_feedforward"})
      model.add(at + norm + "_layernorm.weight", {hidden});
    model.add(at + "layer_scalar", {1});
    model.linear(at + "self_attn.q_proj", heads * size, hidden, false);
    model.linear(at + "self_attn.o_proj", hidden, heads * size, false);
    model.add(at + "self_attn.q_norm.weight", {size});
    for (const char* name : {"gate", "up"}) model.linear(at + "mlp." + name + "_proj", columns, hidden, false);
    model.linear(at + "mlp.down_proj", hidden, columns, false);
    if (l >= shared) continue;
    model.linear(at + "self_attn.k_proj", kv_heads * size, hidden, false);
    model.add(at + "self_attn.k_norm.weight", {size});
    if (!is_full(l)) model.linear(at + "self_attn.v_proj", kv_heads * size, hidden, false);
  }
  return model;
}

TEST(LayerLayouts, HaveHeadsOfTheirOwnSizes) {
  const Resolved resolved(tiny_gemma());
  const Stack& stack = resolved.model.stacks.at(0);
  EXPECT_EQ(stack.layers[0].attention.layout, 0);
  EXPECT_EQ(stack.layers[3].attention.layout, 1);
  EXPECT_EQ(resolved.param("decoder.layers.3.attn.out.weight").layout, 1);
  EXPECT_TRUE(stack.layers[1].attention.values_are_keys);
  EXPECT_FALSE(stack.layers[2].attention.values_are_keys);
  ASSERT_TRUE(stack.layers[1].attention.value_norm);
  EXPECT_FALSE(stack.layers[1].attention.value_norm->weight);
  const StackMetadata& metadata = resolved.model.metadata.stacks.at(0);
  EXPECT_EQ(metadata.layouts, (std::vector<HeadLayout>{{heads, 1, 6, {{1, 2, 2}}}}));
  EXPECT_EQ(cached_layers(metadata, 0), 2);
}

TEST(LayerLayouts, MayBeGivenForEachLayer) {
  Synthetic model = tiny_gemma();
  for (const char* key : {"global_head_dim", "num_global_key_value_heads"}) model.config.erase(key);
  const nlohmann::json wide{{"head_dim", 6}, {"num_key_value_heads", 1}};
  model.config["per_layer_config"] = {{"1", wide}, {"3", wide}};
  EXPECT_EQ(Resolved(model).model.stacks.at(0).layers[3].attention.head_dim, 6);
  model.config["per_layer_config"] = {{"01", wide}, {"03", wide}};  // as transformers writes them, of more layers
  EXPECT_EQ(Resolved(model).model.stacks.at(0).layers[3].attention.head_dim, 6);
  model.config["per_layer_config"].erase("03");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("has shape [24, 8], expected [8, 8]"));
}

TEST(LayerLayouts, OfMissingTensorsAndOtherShapesAreRefusedByName) {
  Synthetic model = tiny_gemma();
  model.config["global_head_dim"] = 4;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("has shape [24, 8], expected [16, 8]"));
  Synthetic separate = tiny_gemma();
  separate.config["attention_k_eq_v"] = false;
  separate.config["num_key_value_heads"] = 1;
  EXPECT_THAT(refusal(separate, Reason::ModelUnreadable), HasSubstr("layers.1.self_attn.v_proj.weight"));
  Synthetic both_ways = tiny_gemma();
  both_ways.config["use_bidirectional_attention"] = "all";
  EXPECT_THAT(refusal(both_ways, Reason::UnknownArchitecture), HasSubstr("both directions"));
}

TEST(ReusedKeys, AreThoseOfTheLastEarlierLayerOfTheKind) {
  const Resolved resolved(tiny_gemma(2));
  const Stack& stack = resolved.model.stacks.at(0);
  EXPECT_EQ(stack.layers[2].attention.reuses, 0);
  EXPECT_EQ(stack.layers[3].attention.reuses, 1);
  EXPECT_EQ(stack.layers[0].attention.reused_as, 0);
  EXPECT_FALSE(stack.layers[2].attention.key.weight.tensor);
  const StackMetadata& metadata = resolved.model.metadata.stacks.at(0);
  EXPECT_EQ(metadata.reuses, (std::vector<KeyReuse>{{0, 0, {{2, 1, 1}}}, {1, 1, {{3, 1, 1}}}}));
  EXPECT_EQ(cached_layers(metadata, 0), 1);
  EXPECT_EQ(cached_layers(metadata, 1), 1);
}

TEST(ReusedKeys, WithoutALayerThatHasThemAreRefused) {
  EXPECT_THAT(refusal(tiny_gemma(1), Reason::ModelUnreadable),
              AllOf(HasSubstr("layer 1"), HasSubstr("gives none before it")));
}

TEST(ReusedKeys, ThatAFileHasAllTheSameAreNotLoaded) {
  Synthetic model = tiny_gemma(2);
  model.linear("model.layers.2.self_attn.k_proj", 4, hidden, false);
  EXPECT_EQ(Resolved(model).model.not_loaded, (std::vector<std::string>{"model.layers.2.self_attn.k_proj.weight"}));
}

TEST(LayerInputs, AreTheShareOfEachLayer) {
  Synthetic model = tiny_gemma();
  model.config["hidden_size_per_layer_input"] = 3;
  model.config["vocab_size_per_layer_input"] = 13;
  model.add("model.embed_tokens_per_layer.weight", {13, 4 * 3});
  model.linear("model.per_layer_model_projection", 4 * 3, hidden, false);
  model.add("model.per_layer_projection_norm.weight", {3});
  for (int l = 0; l < 4; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    model.linear(at + "per_layer_input_gate", 3, hidden, false);
    model.linear(at + "per_layer_projection", hidden, 3, false);
    model.add(at + "post_per_layer_input_norm.weight", {hidden});
  }
  const Resolved resolved(model);
  EXPECT_EQ(resolved.param("decoder.layer_inputs.table").units, 13);
  EXPECT_EQ(resolved.param("decoder.layers.2.input.gate.weight").shape, (std::vector<int64_t>{3, hidden}));
  EXPECT_EQ(resolved.model.metadata.stacks.at(0).layer_inputs, 3);
  model.config["vocab_size_per_layer_input"] = 10;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("one for each of the 11 tokens"));
}

TEST(BesideMlp, HasExpertsWhoseRouterReadsTheResidual) {
  Synthetic model = tiny_gemma();
  model.config["enable_moe_block"] = true;
  model.config["num_experts"] = 3;
  model.config["top_k_experts"] = 2;
  model.config["moe_intermediate_size"] = 5;
  for (int l = 0; l < 4; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    for (const char* norm :
         {"post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"})
      model.add(at + norm + ".weight", {hidden});
    model.linear(at + "router.proj", 3, hidden, false);
    model.add(at + "router.scale", {hidden});
    model.add(at + "router.per_expert_scale", {3});
    model.add(at + "experts.gate_up_proj", {3, 10, hidden});
    model.add(at + "experts.down_proj", {3, hidden, 5});
  }
  const Resolved resolved(model);
  const auto& beside = resolved.model.stacks.at(0).layers[1].beside;
  ASSERT_TRUE(beside && beside->first_norm);
  const auto& routed = std::get<Experts>(beside->mlp.kind);
  EXPECT_TRUE(routed.router.norm && routed.router.norm->weight && routed.router.expert_factors);
  EXPECT_DOUBLE_EQ(routed.router.scale_input, 1 / std::sqrt(8.0));
  EXPECT_EQ(resolved.param("decoder.layers.1.beside.experts.2.up.weight").routed, (RoutedShare{3, 2}));
}

}  // namespace
}  // namespace pm::policy
