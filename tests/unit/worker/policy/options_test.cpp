// SPDX-License-Identifier: Apache-2.0
// Every option of the format, one at a time, on tiny checkpoints: what a policy says is what the model has.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/policy/roles.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

Layer first_layer(const std::string& policy, const Synthetic& synthetic = tiny_gpt2()) {
  return Resolved(synthetic, policy).model.stacks[0].layers[0];
}

std::string gpt2_with(const std::string& stack) { return "extends: gpt2\nstacks: {decoder: {" + stack + "}}\n"; }
std::string bert_with(const std::string& stack) { return "extends: bert\nstacks: {encoder: {" + stack + "}}\n"; }

TEST(Options, AlibiIsAFlagOrASection) {
  EXPECT_FALSE(first_layer(gpt2_with("attn: {alibi: false}")).attention.alibi.has_value());
  const auto plain = first_layer(gpt2_with("attn: {alibi: true}")).attention.alibi;
  ASSERT_TRUE(plain.has_value());
  EXPECT_FALSE(plain->scaled || plain->bf16);
  const auto rounded = first_layer(gpt2_with("attn: {alibi: {scaled: true, bf16: n_head == 5}}")).attention.alibi;
  ASSERT_TRUE(rounded.has_value());
  EXPECT_TRUE(rounded->scaled && rounded->bf16);
  EXPECT_FALSE(first_layer(gpt2_with("attn: {alibi: {when: n_head == 4, scaled: true}}")).attention.alibi.has_value());
}

TEST(Options, AStackCannotBeTheSourceOfItsOwnCrossAttention) {
  try {
    first_layer(
        gpt2_with("cross: {when: true, source: decoder, qkv: {from: attn.c_attn, fused: concat}, out: attn.c_proj}"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("a stack that stands above this one"));
  }
}

TEST(Options, TheResidualMayBeNormed) {
  EXPECT_FALSE(first_layer(gpt2_with("layer: {order: pre}")).residual_normed);
  EXPECT_TRUE(first_layer(gpt2_with("layer: {residual_normed: n_head == 5}")).residual_normed);
}

TEST(Options, BlocksMayBeMultipliedBeforeTheResidual) {
  EXPECT_DOUBLE_EQ(first_layer(gpt2_with("layer: {order: pre}")).residual_multiplier, 1);
  EXPECT_DOUBLE_EQ(first_layer(gpt2_with("layer: {residual_multiplier: 1 / n_head}")).residual_multiplier, 0.2);
}

TEST(Options, OrderNormAndMaskAreWordsOrExpressions) {
  const Layer layer = first_layer(gpt2_with(
      "layer: {order: \"n_head == 5 ? 'post' : 'pre'\"}, attn: {mask: full, window: n_head - 2, scale: 0.25}"));
  EXPECT_EQ(layer.order, Order::Post);
  EXPECT_EQ(layer.attention.mask, Mask::Full);
  EXPECT_EQ(layer.attention.window, 3);
  EXPECT_DOUBLE_EQ(layer.attention.scale, 0.25);
  EXPECT_EQ(first_layer(gpt2_with("layer: {order: parallel}")).order, Order::Parallel);
  EXPECT_EQ(first_layer(gpt2_with("attn: {norm: {from: ln_1, kind: rms, bias: true}}")).attention.norm->kind,
            NormKind::Rms);
  const Norm norm = *first_layer(gpt2_with("attn: {norm: {from: ln_1, kind: layer1p}}")).attention.norm;
  EXPECT_EQ(norm.kind, NormKind::Layer1p);
  EXPECT_TRUE(norm.bias) << "a LayerNorm has a bias unless it is said otherwise";
  EXPECT_DOUBLE_EQ(first_layer(gpt2_with("attn: {norm: {from: ln_1, eps: 0.5}}")).attention.norm->eps, 0.5);
}

TEST(Options, RotaryHasStyleDimsThetaAndScaling) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["rope"] = nlohmann::json::parse(R"({"rope_type": "linear", "factor": 2.0})");
  const Layer rotated =
      first_layer(gpt2_with("attn: {rotary: {style: interleaved, dims: 2, theta: 500, scaling: rope}}"), gpt2);
  ASSERT_TRUE(rotated.attention.rotary.has_value());
  EXPECT_EQ(rotated.attention.rotary->style, RotaryStyle::Interleaved);
  EXPECT_EQ(rotated.attention.rotary->dims, 2);
  EXPECT_DOUBLE_EQ(rotated.attention.rotary->theta, 500);
  EXPECT_EQ(rotated.attention.rotary->scaling["factor"], 2.0);
  gpt2.config["rope"]["rope_type"] = "default";
  const Layer plain = first_layer(gpt2_with("attn: {rotary: {style: neox, scaling: rope}}"), gpt2);
  EXPECT_TRUE(plain.attention.rotary->scaling.is_null());
  EXPECT_EQ(plain.attention.rotary->dims, 4);
  EXPECT_FALSE(first_layer(gpt2_with("attn: {rotary: {when: false, style: neox}}")).attention.rotary.has_value());
}

TEST(Options, NumbersThatMakeNoSenseAreRefused) {
  for (auto [stack, message] :
       {std::pair{"attn: {window: -3}", "the window is -3"},
        {"attn: {rotary: {dims: 3}}", "rotary dimensions is 3"},
        {"attn: {rotary: {dims: 6}}", "even number up to the head size 4"},
        {"attn: {rotary: {dims: -2}}", "rotary dimensions is -2"},
        {"attn: {rotary: {theta: -1.5}}", "theta is -1.5"},
        {"eps: -1", "eps is -1"},
        {"attn: {relative_position_bias: {from: b, num_buckets: 0}}", "buckets is 0"},
        {"attn: {relative_position_bias: {from: b, num_buckets: -1}}", "buckets is -1"},
        {"attn: {relative_position_bias: {from: b, max_distance: 0}}",
         "max_distance is 0 with this config.json, expected more than 16"},
        {"input: {position: {offset: -1}}", "the offset of positions is -1"},
        {"attn: {softcap: -1}", "softcap is -1"},
        {"attn: {qkv: {fused: {blocks: 3, order: [q, v, k]}}}", "a multiple of the 3 blocks"}}) {
    EXPECT_THAT(refusal(tiny_gpt2(), Reason::ModelUnreadable, gpt2_with(stack)),
                AllOf(HasSubstr(message), HasSubstr("policy.yaml:2")))
        << stack;
  }
}

TEST(Options, PositionsHaveOffsetRowsAndMaySkipPadding) {
  const Input plain = Resolved(tiny_bert()).model.stacks[0].input;
  EXPECT_EQ(plain.position, PositionKind::Learned);
  EXPECT_FALSE(plain.position_skips_padding);
  EXPECT_EQ(plain.positions->units, 40);
  EXPECT_EQ(sharding_rule(plain.positions->role).axis, Axis::Positions);
  const Model model =
      Resolved(tiny_bert(), bert_with("positions: 38, input: {position: {offset: 2, skip_padding: true}}")).model;
  EXPECT_EQ(model.stacks[0].input.position_offset, 2);
  EXPECT_TRUE(model.stacks[0].input.position_skips_padding);
  EXPECT_EQ(model.stacks[0].positions, 38);
  EXPECT_EQ(Resolved(tiny_bert(), bert_with("positions: 7, input: {position: {rows: 40}}"))
                .model.stacks[0]
                .input.positions->units,
            40);
  EXPECT_THAT(refusal(tiny_bert(), Reason::ModelUnreadable, bert_with("positions: 39")),
              HasSubstr("has shape [40, 20], expected [39, 20]"));
  const Model without = Resolved(tiny_bert(),
                                 "extends: bert\nignore: [embeddings.position_embeddings.weight]\n"
                                 "stacks: {encoder: {input: {position: none}}}\n")
                            .model;
  EXPECT_EQ(without.stacks[0].input.position, PositionKind::None);
}

TEST(Options, PositionsMayBeComputedAndAddedAfterTheNorm) {
  const auto with = [](const std::string& position) {
    return Resolved(tiny_bert(), bert_with("input: {position: " + position + "}")).model.stacks[0].input;
  };
  EXPECT_FALSE(with("{skip_padding: true, position_ids: tokens}").position_ids_are_rows);
  EXPECT_TRUE(with("{skip_padding: true}").position_ids_are_rows);
  EXPECT_FALSE(with("{offset: 0}").position_ids_are_rows);
  EXPECT_TRUE(with("{after_norm: true}").position_after_norm);
  const auto computed = [](const std::string& word) {
    return Resolved(tiny_bert(),
                    "extends: bert\nignore: [embeddings.position_embeddings.weight]\nstacks: {encoder: {input: "
                    "{position: {learned: ~, sinusoidal: " +
                        word + "}}}}\n")
        .model.stacks[0]
        .input;
  };
  EXPECT_EQ(computed("paper").position, PositionKind::Paper);
  EXPECT_EQ(computed("tensor2tensor").position, PositionKind::Tensor2Tensor);
  EXPECT_FALSE(computed("paper").positions.has_value());
  EXPECT_THAT(refusal(tiny_bert(), Reason::UnsupportedPolicy, bert_with("input: {position: {sinusoidal: paper}}")),
              HasSubstr("needs \"learned\", \"axial\", \"sinusoidal\", \"grid\" or \"convolution\""));
}

TEST(Options, TheInputMayBeScaled) {
  EXPECT_DOUBLE_EQ(Resolved(tiny_gpt2(), gpt2_with("input: {scale: n_embd ** 0.5}")).model.stacks[0].input.scale,
                   std::sqrt(20.0));
}

TEST(Options, TheLastStatesMayBeRaw) {
  EXPECT_FALSE(Resolved(tiny_gpt2()).model.stacks[0].output.raw_states);
  EXPECT_TRUE(Resolved(tiny_gpt2(), gpt2_with("output: {states: raw}")).model.stacks[0].output.raw_states);
  EXPECT_FALSE(Resolved(tiny_gpt2(), gpt2_with("output: {states: normed}")).model.stacks[0].output.raw_states);
}

TEST(Options, APoolerMayHaveNoDense) {
  const auto pooler = Resolved(tiny_bert(), bert_with("output: {pooler: ~}")).model.stacks[0].output.pooler;
  EXPECT_FALSE(pooler.has_value());
  const auto bare = Resolved(tiny_gpt2(), gpt2_with("output: {pooler: {pool: eot}}")).model.stacks[0].output.pooler;
  ASSERT_TRUE(bare.has_value());
  EXPECT_EQ(bare->pool, Pool::Eot);
  EXPECT_FALSE(bare->dense || bare->norm);
  EXPECT_FALSE(bare->activation.has_value());
}

TEST(Options, APoolerMayHaveANormAnActivationAndACondition) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.norm("transformer.pool_norm", 20);
  gpt2.linear("transformer.pool", 12, 20);
  const std::string row = "output: {pooler: {from: pool, norm: pool_norm, act: tanh, when: n_head == ";
  const Resolved resolved(gpt2, gpt2_with(row + "5}}"));
  const auto& pooler = resolved.model.stacks[0].output.pooler;
  ASSERT_TRUE(pooler.has_value());
  EXPECT_EQ(pooler->pool, Pool::First);
  EXPECT_EQ(pooler->activation, Activation::Tanh);
  EXPECT_THAT(pooler->dense->weight.shape, ElementsAre(12, 20));
  EXPECT_EQ(pooler->norm->weight->tensor->name, "transformer.pool_norm.weight");
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable, gpt2_with(row + "4}}")),
              HasSubstr("no parameter of the policy reads"));
  EXPECT_THAT(refusal(tiny_gpt2(), Reason::ModelUnreadable, gpt2_with("output: {pooler: {from: pool}}")),
              HasSubstr("no tensor \"transformer.pool.weight\""));
}

TEST(Options, AHeadThatReadsThePoolerNeedsOne) {
  Synthetic bert = tiny_bert();
  bert.config["architectures"] = {"BertForSequenceClassification"};
  bert.linear("classifier", 3, 20);
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable),
              AllOf(HasSubstr("\"seq\" reads the pooler of the stack \"encoder\""), HasSubstr("policies/bert.yaml:")));
  bert.linear("bert.pooler.dense", 12, 20);
  EXPECT_THAT(refusal(bert, Reason::ModelUnreadable),
              HasSubstr("\"classifier.weight\" has shape [3, 20], expected [any, 12]"));
  bert.linear("classifier", 3, 12);
  const Model model = Resolved(bert).model;
  EXPECT_EQ(model.heads[0].pool(), Pool::Pooler);
  EXPECT_THAT(std::get<ClassesSpec>(model.heads[0].kind).linear->weight.shape, ElementsAre(3, 12));
}

TEST(Options, HeadsNameTheirOutputsAndClassesMayRenameThem) {
  Synthetic bert = tiny_bert();
  EXPECT_THAT(Resolved(bert).model.heads[0].outputs, ElementsAre("logits"));
  bert.linear("bert.pooler.dense", 20, 20);
  bert.linear("cls.seq_relationship", 2, 20);
  bert.config["architectures"] = {"BertForPreTraining"};
  const Resolved both(bert);
  EXPECT_THAT(both.model.heads[0].outputs, ElementsAre("prediction_logits"));
  EXPECT_THAT(both.model.heads[1].outputs, ElementsAre("seq_relationship_logits"));
  bert.linear("qa_outputs", 2, 20);
  bert.config["architectures"] = {"BertForQuestionAnswering"};
  EXPECT_THAT(Resolved(bert).model.heads[0].outputs, ElementsAre("start_logits", "end_logits"));
}

TEST(Options, HeadsHavePoolDenseActivationNormAndScale) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["architectures"] = {"GPT2ForSequenceClassification"};
  gpt2.linear("mine.dense", 8, 20);
  gpt2.norm("mine.norm", 8);
  gpt2.linear("mine.out", 3, 8);
  for (const std::string pool : {"first", "last", "eot", "last_eos", "patches"}) {
    const Model model =
        Resolved(gpt2,
                 "extends: gpt2\nheads: {score: {at: mine., pool: " + pool +
                     ", dense: dense, act: silu, norm: norm, scale_input: 0.5, classes: {from: out, bias: true}}}\n")
            .model;
    const Head& head = model.heads[0];
    const auto& classes = std::get<ClassesSpec>(head.kind);
    EXPECT_EQ(head.pool(), parse<Pool>(pool));
    EXPECT_EQ(head.scores(), 3);
    EXPECT_EQ(classes.transform.activation, Activation::Silu);
    EXPECT_DOUBLE_EQ(classes.transform.scale, 0.5);
    EXPECT_THAT(classes.linear->weight.shape, ElementsAre(3, 8));
    EXPECT_TRUE(classes.transform.dense && classes.transform.norm && classes.linear->bias);
  }
}

TEST(Options, ASimilarityIsBetweenTwoHeads) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("scale", {});
  gpt2.linear("a", 3, 20, false);
  gpt2.linear("b", 3, 20, false);
  const std::string heads =
      "heads: {a: {pool: last, classes: {from: a, bias: false}, output: text_embeds}, b: {pool: first, classes: {from: "
      "b, bias: false}}, "
      "both: {between: [a, b], logit_scale: =scale, output: [x, y]}}\narchitectures: {GPT2LMHeadModel: {task: "
      "similarity, "
      "heads: [a, b, both]}}\n";
  const Model model = Resolved(gpt2, "extends: gpt2\n" + heads).model;
  const auto& similarity = std::get<SimilaritySpec>(model.heads[2].kind);
  EXPECT_THAT(similarity.between, ElementsAre("a", "b"));
  EXPECT_EQ(similarity.scalar->tensor->name, "scale");
  EXPECT_THAT(model.heads[0].outputs, ElementsAre("text_embeds"));
  EXPECT_EQ(model.task, Task::Similarity);
}

TEST(Options, AnArchitectureHasAKindOfItsOwn) {
  EXPECT_EQ(Resolved(tiny_gpt2()).model.kind, ModelKind::Decoder);
  EXPECT_EQ(Resolved(tiny_gpt2(), "extends: gpt2\narchitectures: {GPT2LMHeadModel: {kind: encoder}}\n").model.kind,
            ModelKind::Encoder);
}

TEST(Options, AnArchitectureMayBeRefusedAlwaysOrOnACondition) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["architectures"] = {"GPT2ForMusic"};
  EXPECT_THAT(refusal(gpt2, Reason::UnknownArchitecture,
                      "extends: gpt2\narchitectures: {GPT2ForMusic: {refuse: \"it sings\"}}\n"),
              AllOf(HasSubstr("GPT2ForMusic is not served: "), HasSubstr("it sings"), HasSubstr("policy.yaml:2")));
  Synthetic bert = tiny_bert();
  bert.config["architectures"] = {"BertLMHeadModel"};
  EXPECT_THAT(refusal(bert, Reason::UnknownArchitecture), HasSubstr("is_decoder: true"));
  bert.config["is_decoder"] = true;
  const Model model = Resolved(bert).model;
  EXPECT_EQ(model.kind, ModelKind::Decoder);
  EXPECT_EQ(model.stacks[0].layers[0].attention.mask, Mask::Causal);
}

TEST(Options, AHeadMayReadTheTokenThatARequestNames) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.config["architectures"] = {"GPT2DoubleHeadsModel"};
  gpt2.linear("multiple_choice_head.summary", 1, 20);
  const Model model = Resolved(gpt2).model;  // config.json says nothing of the summary
  EXPECT_EQ(model.heads.at(1).pool(), Pool::ClsIndex);
  EXPECT_THAT(model.heads[1].outputs, ElementsAre("mc_logits"));
  EXPECT_TRUE(model.takes_choices());
  EXPECT_FALSE(Resolved(tiny_gpt2()).model.takes_choices());
  for (const auto& [key, value] : std::map<std::string, nlohmann::json>{{"summary_type", "mean"},
                                                                        {"summary_use_proj", false},
                                                                        {"summary_proj_to_labels", false},
                                                                        {"summary_activation", "tanh"}}) {
    Synthetic other = gpt2;
    other.config[key] = value;
    EXPECT_THAT(refusal(other, Reason::UnknownArchitecture), HasSubstr("a choice head ")) << key;
  }
}

/// GPT-2 whose fused projection has 5 query heads of 4 and one kv head.
Synthetic multi_query_gpt2() {
  Synthetic gpt2 = tiny_gpt2();
  for (int l = 0; l < 3; ++l) {
    gpt2.add("transformer.h." + std::to_string(l) + ".attn.c_attn.weight", {20, 28});
    gpt2.add("transformer.h." + std::to_string(l) + ".attn.c_attn.bias", {28});
  }
  return gpt2;
}

TEST(Options, AFusedConcatMayHaveFewerKvHeads) {
  const Resolved resolved(multi_query_gpt2(), "extends: gpt2\nlet: {kv_heads: 1}\n");
  const auto columns = [&](const std::string& part, Range range) {
    const TensorSlice piece = tensor_slices(resolved.param("decoder.layers.1.attn." + part + ".weight"), range).at(0);
    return std::pair(piece.col, piece.cols);
  };
  EXPECT_EQ(columns("query", {1, 3}), std::pair(int64_t{4}, int64_t{8}));
  EXPECT_EQ(columns("key", {0, 4}), std::pair(int64_t{20}, int64_t{4}));
  EXPECT_EQ(columns("value", {1, 3}), std::pair(int64_t{25}, int64_t{2}));
  EXPECT_EQ(resolved.param("decoder.layers.1.attn.value.weight").block, 4);
  EXPECT_EQ(resolved.param("decoder.layers.1.attn.query.weight").block, 1);
  EXPECT_THAT(refusal(multi_query_gpt2(), Reason::ModelUnreadable,
                      "extends: gpt2\nlet: {kv_heads: 1}\nstacks: {decoder: {attn: {qkv: {fused: per_head}}}}\n"),
              HasSubstr("as many kv heads as heads"));
}

TEST(Options, LayersMayDifferInTheirKvHeads) {
  const std::string policy = "extends: gpt2\nstacks: {decoder: {attn: {kv_heads: \"l == 0 ? 5 : 1\"}}}\n";
  Synthetic gpt2 = multi_query_gpt2();
  gpt2.add("transformer.h.0.attn.c_attn.weight", {20, 60});
  gpt2.add("transformer.h.0.attn.c_attn.bias", {60});
  const Resolved resolved(gpt2, policy);
  EXPECT_EQ(resolved.param("decoder.layers.0.attn.key.weight").layout, 0);
  EXPECT_EQ(resolved.param("decoder.layers.1.attn.key.weight").layout, 1);
  const StackMetadata& stack = resolved.model.metadata.stacks.at(0);
  EXPECT_EQ(stack.kv_heads, 5);
  ASSERT_EQ(stack.layouts.size(), 1U);
  EXPECT_EQ(stack.layouts[0], (HeadLayout{5, 1, 4, {{1, stack.layers - 1, 1}}}));
  EXPECT_EQ(cached_layers(stack, 0), 1);
}

TEST(Options, SizesOfAnAttentionAreBounded) {
  for (const char* size : {"heads", "kv_heads", "head_dim"}) {
    EXPECT_THAT(
        refusal(tiny_gpt2(), Reason::ModelUnreadable, gpt2_with(std::string("attn: {") + size + ": 9000000000000000}")),
        HasSubstr("at most 2^30"));
  }
}

TEST(Options, ABiasMayBeASectionThatIsOptional) {
  const std::string policy = "extends: gpt2\nheads: {lm: {logits: {bias: {from: /final_bias, optional: true}}}}\n";
  EXPECT_FALSE(Resolved(tiny_gpt2(), policy).model.heads[0].as<LogitsSpec>()->linear.bias.has_value());
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("final_bias", {1, 101});  // a leading dimension of 1 is no dimension
  const Resolved resolved(gpt2, policy);
  const Param& bias = *resolved.model.heads[0].as<LogitsSpec>()->linear.bias;
  EXPECT_THAT(bias.shape, ElementsAre(101));
  const std::vector<TensorSlice> range = tensor_slices(bias, {10, 30});
  EXPECT_EQ(range.at(0).col, 10);
  EXPECT_EQ(range.at(0).cols, 20);
  gpt2.add("final_bias", {2, 101});
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable, policy), HasSubstr("has shape [2, 101], expected [101]"));
}

TEST(Options, ATableMayHaveALeadingDimensionOfOne) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("transformer.wpe.weight", {1, 40, 20});
  const Resolved resolved(gpt2);
  const Param& table = resolved.param("decoder.positions");
  EXPECT_THAT(stored_shape(table), ElementsAre(40, 20));
  EXPECT_EQ(tensor_slices(table, {8, 12}).at(0).row, 8);
}

TEST(Options, AtMayBeAListOfWhichTheFirstThatOccursCounts) {
  const std::string policy = gpt2_with("layer: {at: [\"layers.{l}.\", \"h.{l}.\"]}");
  EXPECT_EQ(Resolved(tiny_gpt2(), policy).param("decoder.layers.1.mlp.up.weight").tensor->name,
            "transformer.h.1.mlp.c_fc.weight");
  EXPECT_THAT(refusal(tiny_gpt2(), Reason::ModelUnreadable, gpt2_with("layer: {at: [\"a.{l}.\", \"b.{l}.\"]}")),
              HasSubstr("\"transformer.b.0.ln_1.weight\""));
}

TEST(Options, WithFirstMatchTheOtherNamesMayDiffer) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.add("shared.weight", {101, 20});
  const Resolved resolved(gpt2, gpt2_with("input: {token: {from: [wte, /shared], first_match: true}}"));
  EXPECT_EQ(resolved.param("decoder.token").tensor->name, "transformer.wte.weight");
  EXPECT_THAT(resolved.model.not_loaded, ElementsAre("shared.weight"));
  EXPECT_THAT(refusal(gpt2, Reason::ModelUnreadable, gpt2_with("input: {token: [wte, /shared]}")),
              HasSubstr("should be one tensor and differ"));
}

TEST(Options, AParameterTiedToAMissingTableIsMissingWithIt) {
  Synthetic gpt2 = tiny_gpt2();
  gpt2.tensors.erase("transformer.wte.weight");
  const std::string message = refusal(gpt2, Reason::ModelUnreadable);
  EXPECT_THAT(message, HasSubstr("no tensor \"transformer.wte.weight\""));
  EXPECT_THAT(message, testing::Not(HasSubstr("lm_head")));
}

TEST(TokenIds, OfThePolicyStandBetweenTheTwoConfigs) {
  Synthetic gpt2 = tiny_gpt2();
  Resolved resolved(gpt2);
  EXPECT_THAT(resolved.model.eos, ElementsAre(50256));
  EXPECT_THAT(Resolved(gpt2, "extends: gpt2\neos: text.eos ?? 9\n").model.eos, ElementsAre(9));
  gpt2.config["text"] = nlohmann::json::parse(R"({"eos": [4, 5]})");
  EXPECT_THAT(Resolved(gpt2, "extends: gpt2\neos: text.eos ?? 9\n").model.eos, ElementsAre(4, 5));
  resolved.folder.write("generation_config.json", R"({"eos_token_id": 3})");
  EXPECT_THAT(resolve(*resolved.checkpoint).eos, ElementsAre(3));
  resolved.folder.write("policy.yaml", "extends: gpt2\narchitectures: {GPT2LMHeadModel: {task: embed}}\n");
  EXPECT_THAT(resolve(*resolved.checkpoint, resolved.folder.path / "policy.yaml").eos, ElementsAre(50256));
}

TEST(TokenIds, AnAnswerBeginsWithTheDecodersStart) {
  const std::string policy = "extends: gpt2\nkind: encoder-decoder\n";
  Synthetic gpt2 = tiny_gpt2();
  EXPECT_EQ(Resolved(gpt2).model.decoder_start, -1);
  EXPECT_EQ(Resolved(gpt2, policy).model.decoder_start, -1);
  gpt2.config["bos_token_id"] = 5;
  EXPECT_EQ(Resolved(gpt2, policy).model.decoder_start, 5);
  EXPECT_EQ(Resolved(gpt2, policy + "decoder_start: decoder_start_token_id ?? 6\n").model.decoder_start, 6);
  gpt2.config["decoder_start_token_id"] = 7;
  Resolved resolved(gpt2, policy);
  EXPECT_EQ(resolved.model.decoder_start, 7);
  resolved.folder.write("generation_config.json", R"({"decoder_start_token_id": 8})");
  EXPECT_EQ(resolve(*resolved.checkpoint, resolved.folder.path / "policy.yaml").decoder_start, 8);
}

}  // namespace
}  // namespace pm::policy
