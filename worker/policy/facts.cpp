// See facts.h; also the fixed order of a model's parameters.
#include "worker/policy/facts.h"

#include <map>
#include <numeric>
#include <tuple>

namespace pm::policy {

namespace {

using Params = std::vector<const Param*>;

void add(Params& all, const std::optional<Param>& param) {
  if (param && param->tensor) all.push_back(&*param);
}
void add(Params& all, const Linear& linear) {
  if (linear.weight.tensor) all.push_back(&linear.weight);
  add(all, linear.bias);
}
void add(Params& all, const std::optional<Linear>& linear) {
  if (linear) add(all, *linear);
}
void add(Params& all, const std::optional<Norm>& norm) {
  if (!norm) return;
  add(all, norm->gain);
  add(all, norm->bias);
}
void add(Params& all, const Attention& attention) {
  add(all, attention.norm);
  add(all, attention.post_norm);
  add(all, attention.query_norm);
  add(all, attention.key_norm);
  add(all, attention.query);
  add(all, attention.key);
  add(all, attention.value);
  add(all, attention.out);
  if (attention.bucket_bias && attention.bucket_bias->table.tensor) all.push_back(&attention.bucket_bias->table);
}
void add(Params& all, const Stack& stack) {
  const Input& input = stack.input;
  add(all, input.token);
  add(all, input.positions);
  for (const IndexTable& table : input.tables) all.push_back(&table.table);
  add(all, input.projection);
  add(all, input.class_token);
  add(all, input.norm);
  for (const Layer& layer : stack.layers) {
    add(all, layer.attention);
    if (layer.cross) add(all, *layer.cross);
    add(all, layer.mlp.norm);
    add(all, layer.mlp.post_norm);
    add(all, layer.mlp.up);
    add(all, layer.mlp.gate);
    add(all, layer.mlp.down);
  }
  add(all, stack.output.norm);
  add(all, stack.output.projection);
  if (stack.output.pooler) {
    add(all, stack.output.pooler->norm);
    add(all, stack.output.pooler->dense);
  }
}

int64_t elements_of(const Param& param) {
  return std::accumulate(param.shape.begin(), param.shape.end(), int64_t{1}, std::multiplies<>());
}

/// What makes two parameters of a layer one row: axis, units, type, keep.
using Kind = std::tuple<Axis, int64_t, DType, bool>;

/// Rows of one stack: for each kind the elements per unit of every layer, then equal neighbours merged.
std::vector<Part> parts_of(const std::string& stack, const Params& params) {
  std::map<Kind, std::map<int, int64_t>> table;
  for (const Param* param : params) {
    if (param->stack != stack || !param->shares.empty()) continue;
    const CutRule rule = rule_of(param->role);
    const int64_t units = rule.axis == Axis::None ? 1 : param->units;
    table[{rule.axis, units, param->dtype, param->keep}][param->layer] += elements_of(*param) / units;
  }
  std::vector<Part> parts;
  for (const auto& [kind, layers] : table) {
    const auto [axis, units, dtype, keep] = kind;
    bool open = false;   // the last part may grow
    for (const auto& [layer, elements] : layers) {
      Part* last = open ? &parts.back() : nullptr;
      if (last && layer >= 0 && last->first >= 0 && last->first + last->count == layer && last->elements_per_unit == elements) ++last->count;
      else parts.push_back({stack, layer, 1, axis, units, elements, dtype, keep});
      open = true;
    }
  }
  return parts;
}

StackFacts facts_of(const Stack& stack) {
  StackFacts facts{.name = stack.name, .layers = static_cast<int>(stack.layers.size()), .hidden = stack.hidden};
  facts.vocab = stack.vocab;
  facts.positions = stack.positions;
  if (stack.layers.empty()) return facts;
  const Layer& layer = stack.layers.front();
  facts.heads = layer.attention.heads;
  facts.kv_heads = layer.attention.kv_heads;
  facts.head_dim = layer.attention.head_dim;
  facts.ffn = layer.mlp.width;
  facts.causal = layer.attention.mask == Mask::Causal;
  facts.cross = layer.cross.has_value();
  return facts;
}

}  // namespace

std::vector<const Param*> Model::params() const {
  Params all;
  for (const Stack& stack : stacks) add(all, stack);
  for (const Head& head : heads) {
    add(all, head.dense);
    add(all, head.norm);
    add(all, head.logits);
    add(all, head.classes);
    add(all, head.scalar);
  }
  return all;
}

const Stack* Model::stack(std::string_view name) const {
  for (const Stack& stack : stacks)
    if (stack.name == name) return &stack;
  return nullptr;
}

Facts facts_of(const Model& model) {
  Facts facts{.model_type = model.model_type, .architecture = model.architecture, .task = model.task};
  const Params params = model.params();
  std::map<DType, int64_t> bytes;
  for (const Param* param : params) {
    if (!param->shares.empty()) continue;
    const int64_t elements = elements_of(*param), stored = elements * size_of(param->tensor->dtype);
    facts.parameters += elements;
    facts.checkpoint_bytes += stored;
    bytes[param->tensor->dtype] += stored;
  }
  int64_t most = 0;
  for (const auto& [dtype, count] : bytes)
    if (count > most) most = count, facts.dtype = dtype;
  std::vector<std::string> stacks;
  for (const Stack& stack : model.stacks) {
    facts.stacks.push_back(facts_of(stack));
    stacks.push_back(stack.name);
  }
  stacks.emplace_back();
  for (const std::string& stack : stacks) {
    for (Part& part : parts_of(stack, params)) facts.parts.push_back(std::move(part));
  }
  return facts;
}

}  // namespace pm::policy
