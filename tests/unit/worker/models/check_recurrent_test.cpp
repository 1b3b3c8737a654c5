// SPDX-License-Identifier: Apache-2.0
// Options that this version does not run beside recurrent layers: one case for each refusal.
#include <gtest/gtest.h>

#include <functional>

#include "tests/unit/worker/models/models.h"
#include "worker/models/model.h"

namespace pm::test {
namespace {

/// A model with a recurrent and an attending layer that runs, what is done to it, and the message with which it is
/// refused then.
struct Refused {
  const char* name;
  std::function<void(policy::Stack&)> change;
  const char* message;
};

policy::Stack& recurrent(policy::Model& model) {
  policy::Stack& stack = model.stacks[0];
  stack.layers.push_back(stack.layers[0]);
  for (policy::Layer& layer : stack.layers) layer.attention.mask = policy::Mask::Causal;
  stack.layers[0].recurrent.emplace(policy::DeltaNet{.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 8});
  return stack;
}

constexpr const char* blocks =
    "has recurrent layers beside cross-attention, a bottleneck, a convolution branch or two residual streams";
constexpr const char* rows = "has recurrent layers beside rows that are not those of tokens alone";

class Recurrent : public testing::TestWithParam<Refused> {};

TEST_P(Recurrent, IsRefused) {
  policy::Model changed = model();
  policy::Stack& stack = recurrent(changed);
  ASSERT_EQ(refusal(changed), "runs");
  GetParam().change(stack);
  EXPECT_NE(refusal(changed).find(GetParam().message), std::string::npos) << refusal(changed);
}

INSTANTIATE_TEST_SUITE_P(OfEachKind, Recurrent,
                         testing::ValuesIn(std::vector<Refused>{
                             {"OtherSizes",
                              [](auto& stack) {
                                stack.layers.push_back(stack.layers[0]);
                                std::get<policy::DeltaNet>(stack.layers.back().recurrent->kind).taps = 3;
                              },
                              "has recurrent layers of different sizes in one stack"},
                             {"CrossAttention", [](auto& stack) { stack.layers[1].cross.emplace(); }, blocks},
                             {"TwoStreams",
                              [](auto& stack) {
                                for (auto& layer : stack.layers) layer.order = policy::Order::Reversible;
                              },
                              blocks},
                             {"OneBlockThatIsNotPreNorm",
                              [](auto& stack) {
                                stack.layers[1].has_mlp = false;
                                stack.layers[1].order = policy::Order::Post;
                              },
                              "has layers of one block that are not plainly pre-norm"},
                             {"OneBlockWithoutStates",
                              [](auto& stack) {
                                stack.layers[0].recurrent.reset();
                                stack.layers[0].has_mixer = false;
                              },
                              "has layers of one block in a stack without recurrent layers"},
                             {"OtherKinds",
                              [](auto& stack) {
                                stack.layers.push_back(stack.layers[0]);
                                stack.layers.back().recurrent.emplace(
                                    policy::ShortConvolution{.units = 2, .width = 8, .taps = 4});
                              },
                              "has recurrent layers of different sizes in one stack"},
                             {"Features", [](auto& stack) { stack.input.features.emplace(); }, rows}}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Check, ADecoderNeedsALayerThatAttends) {
  policy::Model decoder = model({head("lm", policy::LogitsSpec{})});
  decoder.task = policy::Task::Generate;
  policy::Stack& stack = recurrent(decoder);
  ASSERT_EQ(refusal(decoder), "runs");
  stack.layers[1].recurrent = stack.layers[0].recurrent;
  EXPECT_NE(refusal(decoder).find("generates with recurrent layers alone"), std::string::npos) << refusal(decoder);
}

}  // namespace
}  // namespace pm::test
