// SPDX-License-Identifier: Apache-2.0
// Layers that pool the rows of a sequence or make them as many as tokens again, on tiny checkpoints.
#include <gmock/gmock.h>

#include "tests/unit/worker/policy/resolved.h"

namespace pm::policy {
namespace {

using testing::HasSubstr;

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
