// SPDX-License-Identifier: Apache-2.0
// Stacks that compute in integers: what may not stand beside that.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/worker/models/models.h"
#include "worker/models/model.h"

namespace pm::test {
namespace {

policy::Linear biased() {
  policy::Linear made;
  made.bias.emplace();
  return made;
}

policy::Norm layer_norm() {
  return {.kind = policy::NormKind::Layer, .weight = policy::Param(), .bias = policy::Param()};
}

/// Returns a model that runs in integers.
policy::Model integers() {
  policy::Model made = model();
  policy::Stack& stack = made.stacks[0];
  policy::Input& input = stack.input;
  input.positions.emplace();
  input.tables = {table("token_type_ids")};
  input.norm = layer_norm();
  input.quantized.emplace();
  policy::Layer& layer = stack.layers[0];
  layer.order = policy::Order::Post;
  policy::Attention& self = layer.attention;
  self.heads = self.kv_heads = 2;
  self.head_dim = 4;
  self.scale = 0.5;
  self.norm = layer.mlp.norm = layer_norm();
  self.quantized.emplace();
  for (policy::Linear* linear : {&self.query, &self.key, &self.value, &self.out}) *linear = biased();
  layer.mlp.kind =
      policy::DenseMlp{.activation = policy::Activation::Gelu, .width = 8, .up = biased(), .down = biased()};
  layer.mlp.quantized.emplace();
  return made;
}

policy::Layer& layer(policy::Model& model) { return model.stacks[0].layers[0]; }
policy::Attention& self(policy::Model& model) { return layer(model).attention; }
policy::DenseMlp& dense(policy::Model& model) { return std::get<policy::DenseMlp>(layer(model).mlp.kind); }
policy::Input& input(policy::Model& model) { return model.stacks[0].input; }

struct Refused {
  const char* name;
  std::function<void(policy::Model&)> change;
  const char* message;
};

class Integers : public testing::TestWithParam<Refused> {};

TEST_P(Integers, AreRefused) {
  policy::Model changed = integers();
  EXPECT_EQ(refusal(changed), "runs");
  GetParam().change(changed);
  EXPECT_EQ(refusal(changed), std::string("TinyModel (tiny) computes in integers ") + GetParam().message +
                                  ", which this version does not run; `families` lists what runs");
}

constexpr const char *input_alone = "by an input that is not norm(token + position + type)",
                     *stack_alone = "in a stack that joins others, pools, or has a memory, a last norm or a projection",
                     *layer_alone = "in layers that are not post-norm, or have further blocks",
                     *attention_alone =
                         "by attention that is causal, grouped, of some keys, has positions or norms in it, or is not "
                         "scaled by the root of the head size",
                     *matrix_alone = "by matrices that are fused, transposed, block-diagonal, shared or without bias",
                     *gelu_alone = "by an MLP that is gated or has another activation than gelu",
                     *norm_alone = "without LayerNorm behind each block";

INSTANTIATE_TEST_SUITE_P(
    OfEachKind, Integers,
    testing::ValuesIn(std::vector<Refused>{
        {"Sinusoids", [](auto& m) { input(m).position = policy::PositionKind::Paper; }, input_alone},
        {"NoTypes", [](auto& m) { input(m).tables.clear(); }, input_alone},
        {"TypesThatMayBeAbsent", [](auto& m) { input(m).tables[0].skip_if_absent = true; }, input_alone},
        {"ScaledTokens", [](auto& m) { input(m).scale = 2; }, input_alone},
        {"Projected", [](auto& m) { input(m).projection.emplace(); }, input_alone},
        {"InputWithoutNorm", [](auto& m) { input(m).norm.reset(); }, input_alone},
        {"LastNorm", [](auto& m) { m.stacks[0].output.norm.emplace(); }, stack_alone},
        {"PreNorm", [](auto& m) { layer(m).order = policy::Order::Pre; }, layer_alone},
        {"Scaled", [](auto& m) { layer(m).residual_multiplier = 2; }, layer_alone},
        {"Stacked", [](auto& m) { layer(m).stacked.resize(1); }, layer_alone},
        {"Causal", [](auto& m) { self(m).mask = policy::Mask::Causal; }, attention_alone},
        {"Grouped", [](auto& m) { self(m).kv_heads = 1; }, attention_alone},
        {"Windowed", [](auto& m) { self(m).window = 4; }, attention_alone},
        {"Rotary", [](auto& m) { self(m).rotary.emplace(); }, attention_alone},
        {"NormedQueries", [](auto& m) { self(m).query_norm.emplace(); }, attention_alone},
        {"Unscaled", [](auto& m) { self(m).scale = 1; }, attention_alone},
        {"NoBias", [](auto& m) { self(m).key.bias.reset(); }, matrix_alone},
        {"Transposed", [](auto& m) { dense(m).up.weight.conv1d = true; }, matrix_alone},
        {"Fused", [](auto& m) { self(m).value.weight.fused = policy::Fused::Concat; }, matrix_alone},
        {"Shared", [](auto& m) { dense(m).down.weight.shares = "other"; }, matrix_alone},
        {"BlockDiagonal", [](auto& m) { self(m).out.weight.diagonal_blocks = 2; }, matrix_alone},
        {"Relu", [](auto& m) { dense(m).activation = policy::Activation::Relu; }, gelu_alone},
        {"Gated", [](auto& m) { layer(m).mlp.kind = policy::GatedMlp(); }, gelu_alone},
        {"RmsNorm", [](auto& m) { self(m).norm->kind = policy::NormKind::Rms; }, norm_alone},
        {"NoNorm", [](auto& m) { layer(m).mlp.norm.reset(); }, norm_alone}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pm::test
