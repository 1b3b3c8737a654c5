// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/adapter/saved_modules.h"

#include <algorithm>
#include <set>

#include "worker/policy/adapter/module_names.h"

namespace pm::policy {

namespace {

constexpr std::string_view weight_suffix = ".weight", bias_suffix = ".bias";
constexpr int64_t block_elements = int64_t{16} << 20;  // of what is read and sent at once

/// Returns the name of the module that a weight belongs to; "" where its name does not say one.
std::string module_of(const Param& weight) {
  const std::string& name = weight.own_name.empty() ? weight.tensor->name : weight.own_name;
  return name.ends_with(weight_suffix) ? name.substr(0, name.size() - weight_suffix.size()) : "";
}

/// Returns whether the tensor is the parameter, row by row.
bool is_plain(const Param& param, size_t dimensions) {
  return param.tensor && param.members == 1 && param.diagonal_blocks == 1 && param.fused == Fused::None &&
         !param.conv1d && param.shape.size() == dimensions && param.tensor->shape == param.shape;
}

class Collector {
 public:
  void add(const std::optional<Linear>& linear) {
    if (linear) add(*linear);
  }
  void add(const Param& table) { add(table, nullptr); }
  void add(const Linear& linear) {
    if (!is_plain(linear.weight, 2)) return;
    const std::string module = module_of(linear.weight);
    const Param* bias = linear.bias && linear.bias->tensor ? &*linear.bias : nullptr;
    // a bias of another module's name is not the one that PEFT saves with this module
    if (bias && (!is_plain(*bias, 1) || bias->tensor->name != module + std::string(bias_suffix))) return;
    add(linear.weight, bias);
  }
  SavedTargets take() && {
    for (const std::string& module : twice_) targets_.erase(module);
    return std::move(targets_);
  }

 private:
  void add(const Param& weight, const Param* bias) {
    const std::string module = module_of(weight);
    if (module.empty()) return;
    const auto [at, fresh] = targets_.emplace(module, SavedTarget{&weight, bias});
    if (!fresh) twice_.insert(module);
  }
  SavedTargets targets_;
  std::set<std::string> twice_;
};

std::string text_of(const std::vector<int64_t>& shape) {
  std::string text;
  for (const int64_t size : shape) text += (text.empty() ? "[" : ", ") + std::to_string(size);
  return text + "]";
}

void check_shapes(const checkpoint::AdapterFolder& adapter, const std::string& module,
                  const checkpoint::SavedModule& saved, const std::string& name, const SavedTarget& target) {
  if (saved.weight.shape != target.weight->shape)
    refuse_adapter(adapter, "module " + module + " has a weight " + text_of(saved.weight.shape) + ", and " + name +
                                " of the base model is " + text_of(target.weight->shape) +
                                "; the base model is expected to have the same vocabulary and classes");
  if (saved.bias.has_value() != (target.bias != nullptr))
    refuse_adapter(adapter, "module " + module + " has " + (saved.bias ? "a bias" : "no bias") + ", and " + name +
                                " of the base model has " + (target.bias ? "one" : "none"));
  if (saved.bias && saved.bias->shape != target.bias->shape)
    refuse_adapter(adapter, "module " + module + " has a bias " + text_of(saved.bias->shape) + ", and that of " + name +
                                " of the base model is " + text_of(target.bias->shape));
}

}  // namespace

int64_t SavedTarget::elements() const { return weight->shape[0] * weight->shape[1] + (bias ? bias->shape[0] : 0); }

namespace {

/// Returns whether tokens alone are looked up in the table, each by the row of its id.
bool is_token_table(const Model& model, const Input& input) {
  if (!input.token || !is_plain(*input.token, 2) || !input.token->own_name.empty()) return false;
  if (!input.clusters.empty() || input.features || input.entities || input.quantized || input.streams) return false;
  const std::vector<const Param*> params = model.params();
  return std::none_of(params.begin(), params.end(), [&](const Param* param) {
    return param != &*input.token && param->tensor == input.token->tensor && !param->stack.empty();
  });
}

/// Throws unless the base ties the target to a table that the adapter has: else modules_to_save has to name it.
void check_tied(const SavedTargets& targets, const checkpoint::AdapterFolder& adapter, const std::string& module,
                const SavedTarget& target) {
  const bool tied = std::any_of(targets.begin(), targets.end(), [&](const auto& other) {
    return other.second.is_table() && other.second.weight->tensor == target.weight->tensor &&
           adapter.saves(other.first);
  });
  if (!tied || target.is_table())
    refuse_adapter(adapter, "module " + module + " is whole, and neither does modules_to_save name it nor does the " +
                                "base model tie it to one that it names");
}

/// Throws where the adapter ties a head to its table, and its file does not have it: PEFT saves both.
void check_has_tied(const SavedTargets& targets, const checkpoint::AdapterFolder& adapter,
                    const std::map<std::string, std::string>& bound) {
  for (const auto& [name, target] : targets)
    for (const auto& [table, other] : targets)
      if (!target.is_table() && other.is_table() && other.weight->tensor == target.weight->tensor &&
          bound.contains(table) && !bound.contains(name))
        refuse_adapter(adapter, "ensure_weight_tying ties " + name + " of the base model to " + table +
                                    ", of which alone the file has whole rows; PEFT saves both");
}

}  // namespace

SavedTargets saved_targets(const Model& model) {
  Collector collector;
  for (const Head& head : model.heads) {
    if (const auto* classes = head.as<ClassesSpec>()) {
      collector.add(classes->transform.dense);
      collector.add(classes->linear);
    } else if (const auto* logits = head.as<LogitsSpec>(); logits && !logits->concat) {
      collector.add(logits->transform.dense);
      collector.add(logits->linear);
    }
  }
  for (const Stack& stack : model.stacks)
    if (is_token_table(model, stack.input)) collector.add(*stack.input.token);
  return std::move(collector).take();
}

std::map<std::string, std::string> bind_saved(const Model& model, const SavedTargets& targets,
                                              const checkpoint::AdapterFolder& adapter) {
  std::map<std::string, std::string> bound;
  for (const auto& [module, saved] : adapter.saved()) {
    const auto& [name, target] =
        *find_module(targets, adapter, module,
                     ", which it has whole, is nothing of " + model.architecture +
                         " that adapters may replace (merge it with PEFT's merge_and_unload()): linears of its heads "
                         "and its table of tokens");
    const auto [other, fresh] = bound.emplace(name, module);
    if (!fresh) refuse_adapter(adapter, "modules " + other->second + " and " + module + " are both " + name);
    if (!adapter.saves(module)) check_tied(targets, adapter, module, target);
    check_shapes(adapter, module, saved, name, target);
  }
  if (adapter.ties_saved()) check_has_tied(targets, adapter, bound);
  const auto check_has = [&](const std::string& module) {
    if (adapter.saves(module) && !bound.contains(module))
      refuse_adapter(adapter, "modules_to_save names " + module + " of the base model, and the file does not have it");
  };
  std::set<const Param*> replaced;
  for (const auto& [name, target] : targets) {
    check_has(name);
    replaced.insert({target.weight, target.bias});
  }
  for (const Param* param : model.params()) {
    if (replaced.contains(param)) continue;
    const std::string& name = param->tensor->name;
    check_has(name.substr(0, name.rfind('.')));
  }
  return bound;
}

void read_saved(const Model& model, const SavedTargets& targets, const checkpoint::AdapterFolder& adapter,
                const std::function<void(Arrays)>& use) {
  for (const auto& [name, module] : bind_saved(model, targets, adapter)) {
    const checkpoint::SavedModule& saved = adapter.saved().at(module);
    const int64_t rows = saved.weight.shape[0], in = saved.weight.shape[1],
                  block = std::max<int64_t>(1, block_elements / std::max<int64_t>(1, in));
    for (int64_t first = 0; first < rows; first += block) {
      const int64_t count = std::min(block, rows - first);
      Arrays part;
      part[name + ".weight@" + std::to_string(first)] = {{count, in}, adapter.read(saved.weight, first, count)};
      if (first == 0 && saved.bias) part[name + ".bias@0"] = {saved.bias->shape, adapter.read(*saved.bias)};
      use(std::move(part));
    }
  }
}

}  // namespace pm::policy
