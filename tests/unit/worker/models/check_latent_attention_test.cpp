// SPDX-License-Identifier: Apache-2.0
// Options that this version does not run beside latent attention: one case for each refusal.
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/worker/models/models.h"
#include "worker/models/model.h"

namespace pm::test {
namespace {

/// What is done to a model that runs, and the message with which it is refused then.
struct Refused {
  const char* name;
  std::function<void(policy::Stack&)> change;
  const char* message;
};

policy::Stack& latent(policy::Model& model) {
  policy::Stack& stack = model.stacks[0];
  stack.layers.push_back(stack.layers[0]);
  for (policy::Layer& layer : stack.layers) {
    policy::Attention& attention = layer.attention;
    attention.mask = policy::Mask::Causal;
    attention.heads = attention.kv_heads = 2;
    attention.head_dim = 6;
    attention.value_dim = 5;
    attention.rotary.emplace().dims = 2;
    attention.latent.emplace();
    attention.latent->rank = 7;
    attention.latent->rotary_dims = 2;
  }
  return stack;
}

constexpr const char* widths = "has latent attention in some layers, or latents of unlike widths";
constexpr const char* blocks = "has latent attention beside cross-attention, a bottleneck";
constexpr const char* rows = "has latent attention beside rows that are not those of tokens alone";
constexpr const char* terms = "has latent attention with a window, sinks, LongRoPE or further terms of scores";

class LatentAttention : public testing::TestWithParam<Refused> {};

TEST_P(LatentAttention, IsRefused) {
  policy::Model changed = model();
  policy::Stack& stack = latent(changed);
  ASSERT_EQ(refusal(changed), "runs");
  GetParam().change(stack);
  EXPECT_NE(refusal(changed).find(GetParam().message), std::string::npos) << refusal(changed);
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, LatentAttention,
                         testing::ValuesIn(std::vector<Refused>{
                             {"OtherWidths", [](auto& stack) { stack.layers[1].attention.latent->rank = 8; }, widths},
                             {"KeysInTheFirstLayer",
                              [](auto& stack) {
                                stack.layers[0].attention.latent.reset();
                                stack.layers[0].attention.value_dim = 0;
                              },
                              widths},
                             {"KeysInTheLastLayer",
                              [](auto& stack) {
                                stack.layers[1].attention.latent.reset();
                                stack.layers[1].attention.value_dim = 0;
                              },
                              widths},
                             {"CrossAttention", [](auto& stack) { stack.layers[1].cross.emplace(); }, blocks},
                             {"Features", [](auto& stack) { stack.input.features.emplace(); }, rows},
                             {"AWindow", [](auto& stack) { stack.layers[1].attention.window = 4; }, terms},
                             {"ACap", [](auto& stack) { stack.layers[0].attention.softcap = 4; }, terms},
                             {"Sinks", [](auto& stack) { stack.layers[0].attention.sinks.emplace(); }, terms},
                             {"Alibi", [](auto& stack) { stack.layers[0].attention.alibi.emplace(); }, terms},
                             {"LongRope", [](auto& stack) { stack.layers[0].attention.rotary->long_rope.emplace(); },
                              terms}}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace pm::test
