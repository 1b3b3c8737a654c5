// See model.h: what runs, loading, and the generating step.
#include "worker/models/model.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/base/error.h"

namespace pm::models {

namespace {

const policy::Head* language_model(const policy::Model& model) {
  if (model.task != "generate") return nullptr;
  for (const policy::Head& head : model.heads)
    if (head.logits) return &head;
  return nullptr;
}

}  // namespace

bool Model::generates(const policy::Model& model) { return language_model(model) != nullptr; }

const policy::Stack& Model::generator(const policy::Model& model) {
  const policy::Head* head = language_model(model);
  return head ? *model.stack(head->stack) : model.stacks.back();
}

void Model::check(const policy::Model& model) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorKind::Model, "UnknownArchitecture", model.architecture + " (" + model.model_type + ") " + what + ", which this version does not run; `families` lists what runs");
  };
  for (const policy::Stack& stack : model.stacks) {
    if (!stack.input.token && !stack.input.projection) refuse("has the stack \"" + stack.name + "\" without tokens and patches");
    const auto tells_cells = [](const policy::IndexTable& table) { return table.input == "token_type_ids" && std::max(table.column, table.minus) >= 2; };
    if (stack.input.position_cells && std::none_of(stack.input.tables.begin(), stack.input.tables.end(), tells_cells)) refuse("has positions in cells without their columns and rows");
    const bool columns = stack.input.token && stack.input.position == policy::PositionKind::Learned && !stack.input.position_last && !stack.input.position_kept && !stack.input.position_cells;
    if (stack.input.features && !columns) refuse("has dense vectors beside tokens whose positions are not learned ones of their columns");
    if (stack.input.features && stack.output.pooler && stack.output.pooler->pool == "last") refuse("pools the last of tokens and dense vectors");
    for (const policy::Layer& layer : stack.layers) {
      if (layer.cross && layer.order == policy::Order::Parallel) refuse("has cross-attention in parallel layers");
      if (layer.cross && (layer.cross->rotary || layer.cross->alibi || layer.cross->bucket_bias)) refuse("has positions in cross-attention");
      if (layer.residual_normed && layer.order != policy::Order::Pre) refuse("has a normed residual in layers that are not pre-norm");
      if ((layer.attention.post_norm || layer.mlp.post_norm) && layer.order != policy::Order::Pre) refuse("has norms after the blocks of layers that are not pre-norm");
      if (layer.attention.softcap > 0 && (layer.attention.alibi || layer.attention.bucket_bias)) refuse("has softcapped scores with a bias");
      if (layer.cross && (layer.cross->softcap > 0 || layer.cross->query_norm || layer.cross->key_norm || layer.cross->post_norm)) refuse("has softcapped scores or further norms in cross-attention");
      if (layer.attention.window > 0 && layer.attention.mask != policy::Mask::Causal) refuse("has a window without a causal mask");
    }
  }
  for (const policy::Head& head : model.heads) {
    const policy::Stack* stack = head.cells ? model.stack(head.stack) : nullptr;
    const auto tells = [&](const char* key) { return std::any_of(stack->input.tables.begin(), stack->input.tables.end(), [&](const auto& table) { return table.key() == key; }); };
    if (stack && (!head.vector || !head.pool.empty() || !tells("token_type_ids.1") || !tells("token_type_ids.2"))) refuse("has cells without one score per token, or without their columns and rows");
  }
  for (const policy::Head& head : model.heads) {
    const policy::Stack* stack = model.stack(head.stack);
    if (stack && stack->input.features && head.pool == "last") refuse("pools the last of tokens and dense vectors");
    if (head.pairs && (!stack || !stack->input.features)) refuse("has pairs of tokens and dense vectors without such vectors");
    if ((head.pairs || head.spans) && !head.pool.empty()) refuse("has pairs or spans of pooled states");
  }
  for (auto head = model.heads.begin(); head != model.heads.end(); ++head) {
    const policy::Head* first = nullptr;
    for (const std::string& name : head->mean) {
      const auto one = std::find_if(model.heads.begin(), head, [&](const policy::Head& before) { return before.name == name; });
      const bool sound = one != head && !one->pool.empty() && one->classes && (!first || first->classes->weight.shape == one->classes->weight.shape);
      if (!sound) refuse("has a mean of heads that do not stand before it, each with one vector per sequence and as many classes");
      first = &*one;
    }
  }
  if (model.task == "generate" && !generates(model)) refuse("has no language-model head for its task");
  if (!generates(model)) return;
  for (const policy::Layer& layer : generator(model).layers) {
    const policy::Attention& self = layer.attention;
    if (self.mask != policy::Mask::Causal) refuse("generates with attention that is not causal");
    if (layer.cross && (layer.cross->kv_heads != self.kv_heads || layer.cross->head_dim != self.head_dim)) {
      refuse("has cross-attention whose heads are not those of its self-attention");
    }
  }
}

Model::Model(const policy::Model& model, const Layers& layers, layers::Loader& loader) : policy_(model) {
  check(model);
  if (layers.size() != model.stacks.size()) throw std::logic_error(std::to_string(layers.size()) + " stacks are laid out, " + model.architecture + " has " + std::to_string(model.stacks.size()));
  for (size_t i = 0; i < layers.size(); ++i) {
    const policy::Stack& stack = model.stacks[i];
    const auto& [name, range] = layers[i];
    if (name != stack.name || range.begin < 0 || range.end > static_cast<int64_t>(stack.layers.size())) {
      throw std::logic_error("layers " + std::to_string(range.begin) + ".." + std::to_string(range.end) + " of \"" + name + "\" are laid out, \"" + stack.name + "\" has " + std::to_string(stack.layers.size()));
    }
    stacks_.push_back(range.size() > 0 ? std::make_unique<Stack>(stack, range, loader) : nullptr);
  }
  last_ = stacks_.back() && stacks_.back()->ends();
  if (!last_) return;
  for (const policy::Head& head : model.heads) {
    heads_.push_back(std::make_unique<Head>(head, loader));
    if (&head == language_model(model)) head_ = heads_.back().get();
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

void Model::step(StepRows& rows, layers::KvCache* cache, Handover& handed, comm::Communicator& comm) const {
  const policy::Stack& generating = generator(policy_);
  for (const policy::IndexTable& table : generating.input.tables) rows.batch.types[table.key()] = at::full_like(rows.batch.tokens, table.given ? -1 : table.usual);
  const bool crosses = generating.layers[0].cross.has_value();
  if (rows.source) {
    const std::string& name = generating.layers[0].cross->source;
    for (const policy::IndexTable& table : policy_.stack(name)->input.tables) rows.source->types[table.key()] = at::full_like(rows.source->tokens, table.given ? -1 : table.usual);
    at::Tensor& states = handed[name];
    if (const Stack* encoder = stack(name)) states = (*encoder)(states, *rows.source, nullptr, nullptr, comm);
    rows.cross.states = states;
  }
  const Stack* here = stack(generating.name);
  if (!here) return;
  at::Tensor& states = handed[generating.name];
  states = (*here)(states, rows.batch, cache, crosses ? &rows.cross : nullptr, comm);
}

}  // namespace pm::models
