// SPDX-License-Identifier: Apache-2.0
// Specs of small models without a checkpoint, for what reads no tensor.
#pragma once
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "worker/base/error.h"
#include "worker/models/model.h"
#include "worker/policy/spec/model.h"

namespace pm::test {

inline policy::Linear linear(std::vector<int64_t> shape) {
  policy::Linear linear;
  linear.weight.shape = std::move(shape);
  return linear;
}

inline policy::IndexTable table(const std::string& input, int64_t column = -1) {
  return {.table = {}, .input = input, .column = column};
}

/// Returns an encoder of one layer that reads tokens at learned positions.
inline policy::Stack encoder() {
  policy::Stack stack;
  stack.name = "encoder";
  stack.hidden = 8;
  stack.vocab = 100;
  stack.positions = 32;
  stack.input.token.emplace();
  stack.input.position = policy::PositionKind::Learned;
  stack.layers.resize(1);
  return stack;
}

inline policy::Features features() {
  policy::Features features;
  features.projection = linear({8, 6});
  features.input = "visual_embeds";
  features.mask = "visual_attention_mask";
  return features;
}

inline policy::Head head(const std::string& name, decltype(policy::Head::kind) kind) {
  policy::Head head;
  head.name = name;
  head.stack = "encoder";
  head.kind = std::move(kind);
  return head;
}

inline policy::ClassesSpec classes(std::optional<policy::Pool> pool, int64_t count = 3) {
  return {.pool = pool, .mlp = {}, .transform = {}, .linear = linear({count, 8})};
}

/// Returns a model of the encoder with these heads.
inline policy::Model model(std::vector<policy::Head> heads = {}) {
  policy::Model model;
  model.architecture = "TinyModel";
  model.model_type = "tiny";
  model.task = policy::Task::Forward;
  model.kind = policy::ModelKind::Encoder;
  model.stacks.push_back(encoder());
  model.heads = std::move(heads);
  return model;
}

/// Returns with which message Model::check refuses the model, or "runs".
inline std::string refusal(const policy::Model& model) {
  try {
    models::Model::check(model);
  } catch (const Error& error) {
    EXPECT_EQ(error.reason, Reason::UnknownArchitecture);
    return error.what();
  }
  return "runs";
}

}  // namespace pm::test
