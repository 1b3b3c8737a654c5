// SPDX-License-Identifier: Apache-2.0
// Model: loading, and the step of generation.
#include "worker/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "worker/models/heads/heads.h"
#include "worker/models/overlapping_steps.h"
#include "worker/models/separators.h"
#include "worker/models/stage_rows.h"

namespace pm::models {

namespace {

const policy::Head* language_model(const policy::Model& model) {
  if (!model.generates()) return nullptr;
  for (const policy::Head& head : model.heads)
    if (head.as<policy::LogitsSpec>() || head.as<policy::ClustersSpec>()) return &head;
  return nullptr;
}

}  // namespace

bool Model::generates(const policy::Model& model) { return language_model(model) != nullptr; }

bool Model::caches(const policy::Model& model) { return generates(model) && !model.recompute; }

bool Model::shows_attentions(const policy::Model& model) {
  return std::none_of(model.stacks.begin(), model.stacks.end(), [](const policy::Stack& stack) {
    return std::any_of(stack.layers.begin(), stack.layers.end(),
                       [](const policy::Layer& layer) { return layer.attention.chunks.has_value(); });
  });
}

const policy::Stack& Model::generating_stack(const policy::Model& model) {
  const policy::Head* head = language_model(model);
  return head ? *model.stack(head->stack) : model.stacks.back();
}

const policy::Stack* Model::source_stack(const policy::Model& model) {
  const auto& cross = generating_stack(model).layers[0].cross;
  return cross ? model.stack(cross->source) : nullptr;
}

Model::Model(const policy::Model& model, const Layers& layers, layers::Loader& loader) : policy_(model) {
  check(model);
  if (layers.size() != model.stacks.size())
    throw std::logic_error(std::to_string(layers.size()) + " stacks are laid out, " + model.architecture + " has " +
                           std::to_string(model.stacks.size()));
  for (size_t i = 0; i < layers.size(); ++i) {
    const policy::Stack& stack = model.stacks[i];
    const auto& [name, range] = layers[i];
    if (name != stack.name || range.begin < 0 || range.end > static_cast<int64_t>(stack.layers.size())) {
      throw std::logic_error("layers " + std::to_string(range.begin) + ".." + std::to_string(range.end) + " of \"" +
                             name + "\" are laid out, \"" + stack.name + "\" has " +
                             std::to_string(stack.layers.size()));
    }
    stacks_.push_back(range.size() > 0 ? std::make_unique<Stack>(stack, range, loader) : nullptr);
  }
  last_ = stacks_.back() && stacks_.back()->ends();
  if (!last_) return;
  for (const policy::Head& head : model.heads) {
    heads_.push_back(make_head(model, head, loader));
    if (&head == language_model(model)) head_ = static_cast<const VocabularyHead*>(heads_.back().get());
  }
}

const Stack* Model::stack(const std::string& name) const {
  for (size_t i = 0; i < stacks_.size(); ++i)
    if (policy_.stacks[i].name == name) return stacks_[i].get();
  throw std::logic_error("no stack " + name);
}

StepRows StepRows::on(at::Device device) && {
  batch = std::move(batch).on(device);
  if (source) source = std::move(*source).on(device);
  cross = std::move(cross).on(device);
  return std::move(*this);
}

void Model::step(StepRows& rows, layers::KvCache* cache, StageState& handed, comm::Communicator& comm) const {
  const policy::Stack& generating = generating_stack(policy_);
  for (const policy::IndexTable& table : generating.input.tables)
    rows.batch.types[table.key()] =
        at::full_like(rows.batch.tokens, table.generation_row.value_or(table.row_if_absent()));
  if (const std::string segments = segments_input(generating); !segments.empty())
    rows.batch.types[segments] = at::zeros_like(rows.batch.tokens);
  if (policy_.recompute && policy_.recompute->overlap) lay_out_overlap(*policy_.recompute->overlap, rows.batch);
  const bool crosses = generating.layers[0].cross.has_value();
  rows.batch.streams = std::min<int64_t>(1, generating.input.stream_count());  // scores are those of the first
  if (rows.source) {
    const std::string& name = generating.layers[0].cross->source;
    for (const policy::IndexTable& table : policy_.stack(name)->input.tables)
      rows.source->types[table.key()] = at::full_like(rows.source->tokens, table.row_if_absent());
    at::Tensor& states = handed[name];
    if (const Stack* encoder = stack(name)) {
      states = (*encoder)(states, *rows.source, nullptr, nullptr, comm);
      if (encoder->ends()) states = encoder->source(states);
    }
    rows.cross.states = states;
  }
  const Stack* here = stack(generating.name);
  if (!here) return;
  at::Tensor& states = handed[generating.name];
  StageRows beside(generating, *here, handed, rows.batch);
  states = (*here)(states, rows.batch, cache, crosses ? &rows.cross : nullptr, comm);
  beside.hand_on();
  if (rows.batch.streams == 0 || !here->ends()) return;
  const int64_t tokens = rows.batch.tokens.size(0);
  states = states.narrow(0, language_model(policy_)->streams ? tokens : 0, tokens);
}

}  // namespace pm::models
