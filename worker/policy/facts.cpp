// See facts.h; also the fixed order of a model's parameters.
#include "worker/policy/facts.h"

#include <map>
#include <numeric>
#include <set>
#include <tuple>

namespace pm::policy {

namespace {

/// A parameter and where it is in the model: a layer of its stack, stack_input or stack_output; heads of the model are at stack_input of "".
struct Placed { const Param* param; int place; };

/// Collects the parameters that have a tensor, in the model's order.
class Collector {
 public:
  std::vector<Placed> all;

  void add(const Stack& stack) {
    place_ = stack_input;
    const Input& input = stack.input;
    add(input.token);
    add(input.positions);
    for (const IndexTable& table : input.tables) all.push_back({&table.table, place_});
    if (input.features) {
      add(input.features->projection);
      add(input.features->positions);
      for (const IndexTable& table : input.features->tables) all.push_back({&table.table, place_});
    }
    add(input.projection);
    add(input.class_token);
    add(input.distillation_token);
    add(input.norm);
    for (place_ = 0; place_ < static_cast<int>(stack.layers.size()); ++place_) add(stack.layers[static_cast<size_t>(place_)]);
    place_ = stack_output;
    add(stack.output.norm);
    add(stack.output.projection);
    if (stack.output.pooler) {
      add(stack.output.pooler->norm);
      add(stack.output.pooler->dense);
    }
  }

  void add(const Head& head) {
    place_ = stack_input;
    add(head.dense);
    add(head.norm);
    add(head.logits);
    add(head.classes);
    if (head.cells) add(head.cells->columns);
    if (const auto& spans = head.spans) {
      for (const Linear* linear : {&spans->start, &spans->end_dense, &spans->end, &spans->answer_dense, &spans->answer}) add(*linear);
      add(spans->end_norm);
    }
    if (head.pairs) {
      add(head.pairs->query);
      add(head.pairs->key);
    }
    add(head.scalar);
  }

 private:
  void add(const std::optional<Param>& param) {
    if (param && param->tensor) all.push_back({&*param, place_});
  }
  void add(const Linear& linear) {
    if (linear.weight.tensor) all.push_back({&linear.weight, place_});
    add(linear.bias);
  }
  void add(const std::optional<Linear>& linear) {
    if (linear) add(*linear);
  }
  void add(const std::optional<Norm>& norm) {
    if (!norm) return;
    add(norm->gain);
    add(norm->bias);
  }
  void add(const Attention& attention) {
    add(attention.norm);
    add(attention.post_norm);
    add(attention.query_norm);
    add(attention.key_norm);
    add(attention.query);
    add(attention.key);
    add(attention.value);
    add(attention.out);
    if (attention.bucket_bias && attention.bucket_bias->table.tensor) all.push_back({&attention.bucket_bias->table, place_});
  }
  void add(const Layer& layer) {
    add(layer.attention);
    if (layer.cross) add(*layer.cross);
    add(layer.mlp.norm);
    add(layer.mlp.post_norm);
    add(layer.mlp.up);
    add(layer.mlp.gate);
    add(layer.mlp.down);
  }

  int place_ = stack_input;
};

std::vector<Placed> placed(const Model& model) {
  Collector collector;
  for (const Stack& stack : model.stacks) collector.add(stack);
  for (const Head& head : model.heads) collector.add(head);
  return std::move(collector.all);
}

int64_t elements_of(const Param& param) {
  return std::accumulate(param.shape.begin(), param.shape.end(), int64_t{1}, std::multiplies<>());
}

/// Places of one stack, ascending, as runs of equal steps.
void append_runs(const std::string& stack, const std::set<int>& places, std::vector<Use>& uses) {
  std::vector<int> layers;
  for (const int place : places) {
    if (place < 0) uses.push_back({stack, place});
    else layers.push_back(place);
  }
  for (size_t i = 0; i < layers.size();) {
    Use use{stack, layers[i]};
    size_t end = i + 1;
    if (end < layers.size()) use.every = layers[end] - layers[i];
    while (end < layers.size() && layers[end] - layers[end - 1] == use.every) ++end;
    use.count = static_cast<int>(end - i);
    if (use.count == 1) use.every = 1;
    uses.push_back(use);
    i = end;
  }
}

/// For each storage that several places read, by the path of its owner: the places beside the owner's.
std::map<std::string, std::vector<Use>> uses_of(const std::vector<Placed>& all, const std::vector<std::string>& stacks) {
  std::map<std::string, std::pair<std::string, int>> owners;
  std::map<std::string, std::map<std::string, std::set<int>>> places;
  for (const auto& [param, place] : all) {
    if (param->shares.empty()) owners[param->path] = {param->stack, place};
    else places[param->shares][param->stack].insert(place);
  }
  std::map<std::string, std::vector<Use>> uses;
  for (auto& [owner, by_stack] : places) {
    if (const auto home = owners.find(owner); home != owners.end()) by_stack[home->second.first].erase(home->second.second);
    for (const std::string& stack : stacks) {
      if (by_stack.contains(stack)) append_runs(stack, by_stack[stack], uses[owner]);
    }
  }
  return uses;
}

/// What makes two parameters of a layer one row: axis, units, type, keep, and who else reads them.
using Kind = std::tuple<Axis, int64_t, DType, bool, std::vector<Use>>;

/// Of one place: elements per unit, and what of them int8 may hold.
struct Amount {
  int64_t elements = 0;
  Quantised quantised;
  bool operator==(const Amount&) const = default;
  void add(const Param& param, const CutRule& rule, int64_t units) {
    elements += elements_of(param) / units;
    if (!param.matrix || param.keep) return;
    const int64_t out = param.shape[0], in = param.shape[1], group = scale_group(param);
    quantised.elements += out * in / units;
    if (rule.dim != 1) quantised.scales += out / units * ((in + group - 1) / group);
    else if (rule.axis == Axis::Heads) quantised.scales += out * (in / units / group);
    else quantised.block_scales += out;
  }
};

/// Rows of one stack: for each kind the elements per unit of every place, then equal neighbours merged.
std::vector<Part> parts_of(const std::string& stack, const std::vector<Placed>& all, const std::map<std::string, std::vector<Use>>& uses) {
  std::map<Kind, std::map<int, Amount>> table;
  for (const auto& [param, place] : all) {
    if (param->stack != stack || !param->shares.empty()) continue;
    const CutRule rule = rule_of(param->role);
    const int64_t units = rule.axis == Axis::None ? 1 : param->units;
    const auto also = uses.find(param->path);
    table[{rule.axis, units, param->dtype, param->keep, also == uses.end() ? std::vector<Use>{} : also->second}][place].add(*param, rule, units);
  }
  std::vector<Part> parts;
  for (const auto& [kind, places] : table) {
    const auto& [axis, units, dtype, keep, also] = kind;
    bool open = false;   // the last part may grow
    for (const auto& [place, amount] : places) {
      Part* last = open ? &parts.back() : nullptr;
      if (last && also.empty() && place >= 0 && last->first >= 0 && last->first + last->count == place && Amount{last->elements_per_unit, last->quantised} == amount) ++last->count;
      else parts.push_back({stack, place, 1, axis, units, amount.elements, dtype, keep, also, amount.quantised});
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
  std::vector<const Param*> all;
  for (const Placed& one : placed(*this)) all.push_back(one.param);
  return all;
}

const Stack* Model::stack(std::string_view name) const {
  for (const Stack& stack : stacks)
    if (stack.name == name) return &stack;
  return nullptr;
}

void mark_matrices(Model& model) {
  const std::vector<Placed> all = placed(model);
  std::set<std::string> owners;   // of storages that are multiplied somewhere
  const auto owner = [](const Param& param) { return param.shares.empty() ? param.path : param.shares; };
  for (const auto& [param, place] : all) {
    if (is_matrix(param->role) && param->shape.size() == 2) owners.insert(owner(*param));
  }
  for (const auto& [param, place] : all) const_cast<Param*>(param)->matrix = owners.contains(owner(*param));   // the model is ours to write
}

Facts facts_of(const Model& model) {
  Facts facts{.model_type = model.model_type, .architecture = model.architecture, .task = model.task};
  const std::vector<Placed> all = placed(model);
  std::map<DType, int64_t> bytes;
  for (const auto& [param, place] : all) {
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
  const auto uses = uses_of(all, stacks);
  for (const std::string& stack : stacks) {
    for (Part& part : parts_of(stack, all, uses)) facts.parts.push_back(std::move(part));
  }
  return facts;
}

}  // namespace pm::policy
