// SPDX-License-Identifier: Apache-2.0
// Experts, their router, and the block beside them, on tiny checkpoints; experts that lie in one tensor; patterns of
// tensors that are not read.
#include <gmock/gmock.h>

#include <array>

#include "tests/unit/worker/policy/resolved.h"
#include "worker/policy/tensor_slices.h"

namespace pm::policy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t hidden = 8, columns = 6, experts = 4;

void add_block(Synthetic& model, const std::string& at, int64_t width, bool bias = false) {
  model.linear(at + "gate_proj", width, hidden, bias);
  model.linear(at + "up_proj", width, hidden, bias);
  model.linear(at + "down_proj", hidden, width, bias);
}

/// GLM-4.5 in small: a dense layer, then two with experts and a shared block, and one that predicts further ahead.
Synthetic tiny_glm() {
  Synthetic model;
  model.config = {{"model_type", "glm4_moe"},
                  {"architectures", {"Glm4MoeForCausalLM"}},
                  {"vocab_size", 11},
                  {"hidden_size", hidden},
                  {"num_hidden_layers", 3},
                  {"num_attention_heads", 2},
                  {"num_key_value_heads", 1},
                  {"head_dim", 4},
                  {"intermediate_size", 10},
                  {"moe_intermediate_size", columns},
                  {"n_routed_experts", experts},
                  {"num_experts_per_tok", 2},
                  {"n_group", 2},
                  {"topk_group", 1},
                  {"routed_scaling_factor", 1.5}};
  model.add("model.embed_tokens.weight", {11, hidden});
  model.add("lm_head.weight", {11, hidden});
  model.add("model.norm.weight", {hidden});
  for (int l = 0; l < 4; ++l) {
    const std::string at = "model.layers." + std::to_string(l) + ".";
    if (l == 3) {
      model.linear(at + "eh_proj", hidden, 2 * hidden, false);
      break;
    }
    model.add(at + "input_layernorm.weight", {hidden});
    model.add(at + "post_attention_layernorm.weight", {hidden});
    model.linear(at + "self_attn.q_proj", hidden, hidden, false);
    model.linear(at + "self_attn.k_proj", 4, hidden, false);
    model.linear(at + "self_attn.v_proj", 4, hidden, false);
    model.linear(at + "self_attn.o_proj", hidden, hidden, false);
    if (l == 0) {
      add_block(model, at + "mlp.", 10);
      continue;
    }
    model.add(at + "mlp.gate.weight", {experts, hidden});
    model.add(at + "mlp.gate.e_score_correction_bias", {experts});
    add_block(model, at + "mlp.shared_experts.", columns);
    for (int e = 0; e < experts; ++e) add_block(model, at + "mlp.experts." + std::to_string(e) + ".", columns);
  }
  return model;
}

TEST(Experts, AreNumberedInTheirNamesAndCutByColumns) {
  const Resolved resolved(tiny_glm());
  const Stack& stack = resolved.model.stacks[0];
  EXPECT_TRUE(std::holds_alternative<GatedMlp>(stack.layers[0].mlp.kind));
  const auto& routed = std::get<Experts>(stack.layers[2].mlp.kind);
  ASSERT_EQ(routed.experts.size(), 4U);
  EXPECT_EQ(routed.router.per_token, 2);
  EXPECT_EQ(routed.router.groups, 2);
  EXPECT_EQ(routed.router.groups_kept, 1);
  EXPECT_EQ(routed.router.factor, 1.5);
  EXPECT_EQ(routed.router.scores, RouterScores::Sigmoid);
  EXPECT_TRUE(routed.router.normalise && routed.router.choice_bias && routed.shared && !routed.shared_gate);
  const Param& down = resolved.param("decoder.layers.2.mlp.experts.3.down.weight");
  EXPECT_EQ(down.tensor->name, "model.layers.2.mlp.experts.3.down_proj.weight");
  EXPECT_EQ(down.role, Role::DownWeight);
  EXPECT_EQ(down.units, columns);
  EXPECT_TRUE(down.matrix);
  EXPECT_EQ(down.routed, (RoutedShare{4, 2}));
  EXPECT_EQ(resolved.param("decoder.layers.2.mlp.shared.up.weight").routed, RoutedShare{});
  EXPECT_EQ(resolved.param("decoder.layers.1.mlp.router.weight").role, Role::RouterWeight);
  EXPECT_TRUE(has_experts(resolved.model));
  EXPECT_FALSE(has_experts(Resolved(tiny_gpt2()).model));
}

TEST(Experts, AreAPartOfTheirOwnInTheMetadata) {
  const ModelMetadata& metadata = Resolved(tiny_glm()).model.metadata;
  int64_t routed = 0;
  for (const Part& part : metadata.parts) {
    if (part.routed.experts == 0) continue;
    EXPECT_EQ(part.routed, (RoutedShare{4, 2}));
    EXPECT_EQ(part.axis, Axis::Ffn);
    EXPECT_EQ(part.first, 1);
    routed += part.units * part.elements_per_unit * part.count;
  }
  EXPECT_EQ(routed, 2 * experts * 3 * columns * hidden);
  EXPECT_EQ(metadata.stacks[0].ffn, 10) << "of the widest block";
}

TEST(Experts, OfAConfigurationThatCannotBeAreRefused) {
  const auto with = [](const char* key, int64_t value) {
    Synthetic model = tiny_glm();
    model.config[key] = value;
    return refusal(model, Reason::ModelUnreadable);
  };
  EXPECT_THAT(with("num_experts_per_tok", 0), HasSubstr("\"per_token\" the value 0, expected 1 to 2"));
  EXPECT_THAT(with("num_experts_per_tok", 3), HasSubstr("expected 1 to 2")) << "the group that is kept has two";
  EXPECT_THAT(with("n_group", 3), HasSubstr("4 experts in 3 groups of equal size"));
  EXPECT_THAT(with("topk_group", 3), HasSubstr("\"groups_kept\" the value 3"));
  EXPECT_THAT(with("n_routed_experts", 5000), HasSubstr("\"count\" the value 5000, expected 1 to 4096"));
  EXPECT_THAT(with("n_routed_experts", 500), HasSubstr("500 experts up to layer 1, and the checkpoint has 59 tensors"));
  EXPECT_THAT(with("n_routed_experts", 6), HasSubstr("has shape [4, 8], expected [6, 8]"));
  EXPECT_THAT(with("moe_intermediate_size", 0), HasSubstr("an MLP of 0 columns"));
}

TEST(Experts, ThatNoTensorFillsAreNamed) {
  Synthetic model = tiny_glm();
  model.tensors.erase("model.layers.1.mlp.experts.2.up_proj.weight");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("model.layers.1.mlp.experts.2.up_proj.weight"));
  Synthetic more = tiny_glm();
  add_block(more, "model.layers.1.mlp.experts.4.", columns);
  EXPECT_THAT(refusal(more, Reason::ModelUnreadable),
              HasSubstr("no parameter of the policy reads \"model.layers.1.mlp.experts.4.down_proj.weight\""));
}

/// A layer of gpt-oss in small: experts in one tensor, transposed, gate and up in turn.
Synthetic tiny_stacked() {
  Synthetic model;
  model.config = {{"model_type", "gpt_oss"},
                  {"architectures", {"GptOssForCausalLM"}},
                  {"vocab_size", 11},
                  {"hidden_size", hidden},
                  {"num_hidden_layers", 1},
                  {"num_attention_heads", 4},
                  {"num_key_value_heads", 2},
                  {"head_dim", 2},
                  {"intermediate_size", columns},
                  {"num_local_experts", experts},
                  {"num_experts_per_tok", 2},
                  {"rope_parameters", {{"rope_type", "default"}, {"rope_theta", 1000.0}}}};
  model.add("model.embed_tokens.weight", {11, hidden});
  model.add("lm_head.weight", {11, hidden});
  model.add("model.norm.weight", {hidden});
  const std::string at = "model.layers.0.";
  model.add(at + "input_layernorm.weight", {hidden});
  model.add(at + "post_attention_layernorm.weight", {hidden});
  model.add(at + "self_attn.sinks", {4});
  model.linear(at + "self_attn.q_proj", 8, hidden, true);
  model.linear(at + "self_attn.k_proj", 4, hidden, true);
  model.linear(at + "self_attn.v_proj", 4, hidden, true);
  model.linear(at + "self_attn.o_proj", hidden, 8, true);
  model.linear(at + "mlp.router", experts, hidden, true);
  model.add(at + "mlp.experts.gate_up_proj", {experts, hidden, 2 * columns});
  model.add(at + "mlp.experts.gate_up_proj_bias", {experts, 2 * columns});
  model.add(at + "mlp.experts.down_proj", {experts, columns, hidden});
  model.add(at + "mlp.experts.down_proj_bias", {experts, hidden});
  return model;
}

/// Returns row, rows, column and columns of a parameter's one slice, then the steps between them.
std::array<int64_t, 6> slice_of(const Param& param, Range range) {
  const std::vector<TensorSlice> slices = tensor_slices(param, range);
  EXPECT_EQ(slices.size(), 1U) << param.path;
  const TensorSlice& one = slices.at(0);
  return {one.row, one.rows, one.col, one.cols, one.row_step, one.col_step};
}

TEST(StackedExperts, AreSlicesOfOneTensor) {
  Synthetic model = tiny_stacked();
  model.add("model.layers.0.mlp.experts.down_proj", {1, experts, columns, hidden});  // dimensions of 1 do not count
  const Resolved resolved(model);
  const std::string at = "decoder.layers.0.mlp.experts.3.";
  EXPECT_THAT(slice_of(resolved.param(at + "gate.weight"), {0, 6}), ElementsAre(3 * 8, 8, 0, 6, 1, 2));
  EXPECT_THAT(slice_of(resolved.param(at + "up.weight"), {2, 5}), ElementsAre(3 * 8, 8, 2 * 2 + 1, 3, 1, 2));
  EXPECT_THAT(slice_of(resolved.param(at + "up.bias"), {2, 5}), ElementsAre(0, 1, 3 * 12 + 2 * 2 + 1, 3, 1, 2));
  EXPECT_THAT(slice_of(resolved.param(at + "down.weight"), {2, 5}), ElementsAre(3 * 6 + 2, 3, 0, 8, 1, 1));
  EXPECT_THAT(slice_of(resolved.param(at + "down.bias"), {0, 1}), ElementsAre(0, 1, 3 * 8, 8, 1, 1));
  const auto& routed = std::get<Experts>(resolved.model.stacks[0].layers[0].mlp.kind);
  EXPECT_EQ(routed.experts.size(), 4U);
  EXPECT_EQ(routed.experts[2].limit, 7);
  EXPECT_EQ(routed.experts[2].up_offset, 1);
}

TEST(StackedExperts, ThatDoNotFitAreNamedOnce) {
  Synthetic model = tiny_stacked();
  model.config["num_local_experts"] = 3;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("has shape [4, 8, 12], expected [3, 8, 12]"));
  model = tiny_stacked();
  model.config["num_local_experts"] = 4096;
  model.config["num_hidden_layers"] = 17;
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable),
              HasSubstr("4096 experts in each of 17 layers, expected at most"));
  model = tiny_stacked();
  model.tensors.erase("model.layers.0.mlp.experts.down_proj");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("no tensor \"model.layers.0.mlp.experts.down_proj\""));
  model = tiny_stacked();
  model.config["quantization_config"] = {{"quant_method", "mxfp4"}};
  model.tensors.erase("model.layers.0.mlp.experts.down_proj");
  model.add("model.layers.0.mlp.experts.down_proj_blocks", {4, 8, 1, 16});
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("no \"model.layers.0.mlp.experts.down_proj_scales\""));
}

/// The text of Qwen3-VL with experts in small, whose experts have matrices of these shapes.
Synthetic tiny_by_shape(int64_t width, const std::vector<int64_t>& gate_up, const std::vector<int64_t>& down) {
  Synthetic model;
  model.config = {{"model_type", "qwen3_vl_moe_text"},
                  {"architectures", {"Qwen3VLMoeTextModel"}},
                  {"vocab_size", 11},
                  {"hidden_size", hidden},
                  {"num_hidden_layers", 1},
                  {"num_attention_heads", 2},
                  {"num_key_value_heads", 1},
                  {"head_dim", 4},
                  {"moe_intermediate_size", width},
                  {"num_experts", experts},
                  {"num_experts_per_tok", 2},
                  {"rope_parameters", {{"rope_type", "default"}, {"mrope_section", {1, 1, 0}}}}};
  model.add("embed_tokens.weight", {11, hidden});
  model.add("norm.weight", {hidden});
  const std::string at = "layers.0.";
  model.add(at + "input_layernorm.weight", {hidden});
  model.add(at + "post_attention_layernorm.weight", {hidden});
  for (const char* name : {"q_norm", "k_norm"}) model.add(at + "self_attn." + name + ".weight", {4});
  model.linear(at + "self_attn.q_proj", 8, hidden, false);
  model.linear(at + "self_attn.k_proj", 4, hidden, false);
  model.linear(at + "self_attn.v_proj", 4, hidden, false);
  model.linear(at + "self_attn.o_proj", hidden, 8, false);
  model.linear(at + "mlp.gate", experts, hidden, false);
  model.add(at + "mlp.experts.gate_up_proj", {experts, gate_up[0], gate_up[1]});
  model.add(at + "mlp.experts.down_proj", {experts, down[0], down[1]});
  return model;
}

TEST(StackedExperts, LieAsTheirShapeSays) {
  const std::string at = "decoder.layers.0.mlp.experts.3.";
  for (const bool gate_up_turned : {false, true}) {
    for (const bool down_turned : {false, true}) {
      const Resolved resolved(
          tiny_by_shape(columns, gate_up_turned ? std::vector<int64_t>{hidden, 12} : std::vector<int64_t>{12, hidden},
                        down_turned ? std::vector<int64_t>{columns, hidden} : std::vector<int64_t>{hidden, columns}));
      const auto gate = slice_of(resolved.param(at + "gate.weight"), {0, 6}),
                 up = slice_of(resolved.param(at + "up.weight"), {2, 5}),
                 down = slice_of(resolved.param(at + "down.weight"), {2, 5});
      EXPECT_EQ(resolved.param(at + "up.weight").shape, (std::vector<int64_t>{columns, hidden}));
      EXPECT_EQ(resolved.param(at + "down.weight").shape, (std::vector<int64_t>{hidden, columns}));
      if (gate_up_turned) {
        EXPECT_THAT(gate, ElementsAre(3 * 8, 8, 0, 6, 1, 1));
        EXPECT_THAT(up, ElementsAre(3 * 8, 8, 6 + 2, 3, 1, 1));
      } else {
        EXPECT_THAT(gate, ElementsAre(3 * 12, 6, 0, 8, 1, 1));
        EXPECT_THAT(up, ElementsAre(3 * 12 + 6 + 2, 3, 0, 8, 1, 1));
      }
      if (down_turned)
        EXPECT_THAT(down, ElementsAre(3 * 6 + 2, 3, 0, 8, 1, 1));
      else
        EXPECT_THAT(down, ElementsAre(3 * 8, 8, 2, 3, 1, 1));
    }
  }
}

TEST(StackedExperts, OfEqualSidesAreNotTurned) {
  const Resolved square_pairs(tiny_by_shape(hidden / 2, {hidden, hidden}, {hidden / 2, hidden})),
      square_outputs(tiny_by_shape(hidden, {hidden, 2 * hidden}, {hidden, hidden}));
  const std::string at = "decoder.layers.0.mlp.experts.1.";
  EXPECT_FALSE(square_pairs.param(at + "gate.weight").conv1d || square_pairs.param(at + "up.weight").conv1d);
  EXPECT_TRUE(square_pairs.param(at + "down.weight").conv1d);
  EXPECT_TRUE(square_outputs.param(at + "gate.weight").conv1d && square_outputs.param(at + "up.weight").conv1d);
  EXPECT_FALSE(square_outputs.param(at + "down.weight").conv1d);
}

TEST(StackedExperts, OfNeitherShapeAreNamedWithBoth) {
  EXPECT_THAT(
      refusal(tiny_by_shape(columns, {hidden, 13}, {hidden, columns}), Reason::ModelUnreadable),
      HasSubstr("\"layers.0.mlp.experts.gate_up_proj\" has shape [4, 8, 13], expected [4, 12, 8] or [4, 8, 12]"));
  EXPECT_THAT(refusal(tiny_by_shape(columns, {hidden, 12}, {7, hidden}), Reason::ModelUnreadable),
              HasSubstr("\"layers.0.mlp.experts.down_proj\" has shape [4, 7, 8], expected [4, 8, 6] or [4, 6, 8]"));
}

TEST(StackedExperts, AloneMayLieAsTheirShapeSays) {
  const std::string policy =
      "extends: qwen3_vl_moe\nmodel_type: [qwen3_vl_moe_text]\n"
      "stacks: {decoder: {layer: {layout: by_shape}}}\n"
      "architectures: {Qwen3VLMoeTextModel: {task: embed}}\n";
  EXPECT_THAT(refusal(tiny_by_shape(columns, {hidden, 12}, {hidden, columns}), Reason::ModelUnreadable, policy),
              HasSubstr("by_shape"));
}

TEST(Sinks, AreCutWithTheHeads) {
  const Resolved resolved(tiny_stacked());
  const Param& sinks = resolved.param("decoder.layers.0.attn.sinks");
  EXPECT_EQ(sinks.role, Role::AttentionSink);
  EXPECT_THAT(slice_of(sinks, {1, 3}), ElementsAre(0, 1, 1, 2, 1, 1));
  Synthetic model = tiny_stacked();
  model.tensors.erase("model.layers.0.self_attn.sinks");
  EXPECT_THAT(refusal(model, Reason::ModelUnreadable), HasSubstr("no tensor \"model.layers.0.self_attn.sinks\""));
}

TEST(Ignored, PatternsMayHaveExpressionsAndAnyEnd) {
  const Resolved resolved(tiny_glm());
  EXPECT_THAT(resolved.model.not_loaded, ElementsAre("model.layers.3.eh_proj.weight"));
  Synthetic other = tiny_glm();
  other.add("model.layers.2.eh_proj.weight", {1});
  EXPECT_THAT(refusal(other, Reason::ModelUnreadable), HasSubstr("reads \"model.layers.2.eh_proj.weight\""));
}

}  // namespace
}  // namespace pm::policy
