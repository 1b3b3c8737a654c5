// SPDX-License-Identifier: Apache-2.0
// The ranges of integer-only inference, on a tiny checkpoint.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::HasSubstr;

/// I-BERT in integers: BERT's parameters beside their ranges.
Synthetic tiny_ibert() {
  Synthetic s;
  s.config = {{"model_type", "ibert"},    {"architectures", {"IBertModel"}}, {"hidden_size", 20},
              {"num_attention_heads", 5}, {"num_hidden_layers", 2},          {"intermediate_size", 37},
              {"vocab_size", 101},        {"max_position_embeddings", 40},   {"quant_mode", true}};
  const auto range = [&](const std::string& name) {
    s.add(name + ".x_min", {1});
    s.add(name + ".x_max", {1});
  };
  const auto norm = [&](const std::string& name) {
    s.norm(name + "LayerNorm", 20);
    s.add(name + "LayerNorm.shift", {1});
  };
  const std::string input = "ibert.embeddings.";
  s.add(input + "word_embeddings.weight", {101, 20});
  s.add(input + "position_embeddings.weight", {40, 20});
  s.add(input + "token_type_embeddings.weight", {2, 20});
  norm(input);
  for (const char* name : {"embeddings_act1", "output_activation"}) range(input + name);
  for (int l = 0; l < 2; ++l) {
    const std::string at = "ibert.encoder.layer." + std::to_string(l) + ".";
    for (const char* name : {"query", "key", "value"}) {
      s.linear(at + "attention.self." + name, 20, 20);
      range(at + "attention.self." + name + "_activation");
    }
    s.linear(at + "attention.output.dense", 20, 20);
    s.linear(at + "intermediate.dense", 37, 20);
    s.linear(at + "output.dense", 20, 37);
    for (const char* block : {"attention.output.", "output."}) norm(at + block);
    for (const char* name :
         {"attention.self.softmax.act", "attention.self.output_activation", "attention.output.ln_input_act",
          "attention.output.output_activation", "intermediate.output_activation", "output.ln_input_act",
          "output.output_activation", "pre_intermediate_act", "pre_output_act"})
      range(at + name);
  }
  return s;
}

std::string ibert_with(const std::string& encoder) { return "extends: ibert\nstacks: {encoder: {" + encoder + "}}\n"; }

TEST(QuantizedOptions, ReadTheRangesOfEveryActivation) {
  const Resolved resolved(tiny_ibert());
  const Stack& stack = resolved.model.stacks[0];
  ASSERT_TRUE(stack.input.quantized && stack.layers[1].attention.quantized && stack.layers[1].mlp.quantized);
  const auto tensor = [&](const std::string& path) { return resolved.param(path).tensor->name; };
  EXPECT_EQ(tensor("encoder.quantized.sum.low"), "ibert.embeddings.embeddings_act1.x_min");
  EXPECT_EQ(tensor("encoder.quantized.shift"), "ibert.embeddings.LayerNorm.shift");
  const std::string at = "encoder.layers.1.", theirs = "ibert.encoder.layer.1.";
  EXPECT_EQ(tensor(at + "attn.quantized.exponents.high"), theirs + "attention.self.softmax.act.x_max");
  EXPECT_EQ(tensor(at + "mlp.quantized.down.high"), theirs + "pre_output_act.x_max");
  EXPECT_EQ(resolved.param(at + "mlp.quantized.down.high").role, Role::Scalar);
  EXPECT_TRUE(resolved.model.metadata.stacks[0].integers);
}

TEST(QuantizedOptions, EveryLayerHasTheRangeOfTheStacksInput) {
  const Resolved resolved(tiny_ibert());
  for (const char* end : {"low", "high"}) {
    const Param& param = resolved.param(std::string("encoder.layers.1.attn.quantized.input.") + end);
    EXPECT_EQ(param.shares, std::string("encoder.quantized.output.") + end);
    EXPECT_EQ(param.layer, 1);
    EXPECT_EQ(param.tensor, resolved.param(param.shares).tensor);
  }
}

TEST(QuantizedOptions, AreAbsentInFloatingPoint) {
  Synthetic s = tiny_ibert();
  s.config["quant_mode"] = false;
  const Resolved resolved(s);
  EXPECT_FALSE(resolved.model.stacks[0].input.quantized || resolved.model.stacks[0].layers[0].mlp.quantized);
  EXPECT_FALSE(resolved.model.metadata.stacks[0].integers);
}

TEST(QuantizedOptions, FunctionsMayComputeInFloatingPoint) {
  Synthetic s = tiny_ibert();
  const auto with = [&](const char* floats) {
    s.config["force_dequant"] = floats;
    return Resolved(s);
  };
  for (const char* floats : {"none", "gelu", "softmax", "layernorm", "nonlinear"}) {
    const Resolved resolved = with(floats);
    const Layer& layer = resolved.model.stacks[0].layers[1];
    const auto is = [&](std::string_view name) { return floats == name || std::string_view(floats) == "nonlinear"; };
    EXPECT_EQ(layer.mlp.quantized->float_activation, is("gelu")) << floats;
    EXPECT_EQ(layer.attention.quantized->exponents.has_value(), !is("softmax")) << floats;
    EXPECT_EQ(layer.attention.quantized->shift.has_value(), !is("layernorm")) << floats;
    EXPECT_EQ(layer.mlp.quantized->shift.has_value(), !is("layernorm")) << floats;
    EXPECT_EQ(resolved.model.stacks[0].input.quantized->shift.has_value(), !is("layernorm")) << floats;
  }
}

TEST(QuantizedOptions, StandInAllPartsOfAStackOrInNone) {
  const auto refused = [](const std::string& encoder) {
    return refusal(tiny_ibert(), Reason::UnsupportedPolicy, ibert_with(encoder));
  };
  for (const char* part : {"input", "attn", "mlp"})
    EXPECT_THAT(refused(std::string(part) + ": {quantized: ~}"), HasSubstr("all layers of a stack, or in none"));
  EXPECT_THAT(refused("stacked_mlp: {quantized: {input: a}}"), HasSubstr("unknown key \"quantized\" in stacked_mlp"));
  EXPECT_THAT(refused("cross: {quantized: {query: a}}"), HasSubstr("unknown key \"quantized\" in cross"));
  EXPECT_THAT(refused("mlp: {quantized: {down: ~}}"), HasSubstr("\"quantized\" needs the name of \"down\""));
  EXPECT_THAT(refused("attn: {quantized: {shift: ~}}"), HasSubstr("\"quantized\" needs the name of \"shift\""));
}

TEST(QuantizedOptions, MissingRangesAreNamed) {
  Synthetic s = tiny_ibert();
  s.tensors.erase("ibert.encoder.layer.1.pre_output_act.x_max");
  EXPECT_THAT(refusal(s, Reason::ModelUnreadable),
              HasSubstr("no tensor \"ibert.encoder.layer.1.pre_output_act.x_max\""));
}

}  // namespace
}  // namespace pm::policy
