// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/adapter/adapter_targets.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "worker/policy/adapter/module_names.h"
#include "worker/policy/roles.h"

namespace pm::policy {

namespace {

constexpr std::string_view suffix = ".weight";

/// Collects the weights of linears that go through layers::ColumnLinear or layers::RowLinear.
class Collector {
 public:
  void add(const Linear& linear) {
    const Param& weight = linear.weight;
    if (!weight.tensor || weight.members > 1 || weight.diagonal_blocks > 1) return;
    if (!weight.tensor->name.ends_with(suffix) || weight.tensor->shape.size() != 2) return;
    if (sharding_rule(weight.role).dim == 1 && weight.fused != Fused::None) return;  // parts are outputs
    const std::string& name = weight.tensor->name;
    AdapterTarget& target = targets[name.substr(0, name.size() - suffix.size())];
    target.params.push_back(&weight);
    const std::vector<int64_t>& stored = weight.tensor->shape;
    target.out = stored[weight.conv1d ? 1 : 0];
    target.in = stored[weight.conv1d ? 0 : 1];
    params.insert(&weight);
  }
  void add(const Attention& attention) {
    if (attention.quantized) return;
    for (const Linear* linear : {&attention.query, &attention.key, &attention.value, &attention.out}) add(*linear);
    if (attention.output_gate) add(*attention.output_gate);
  }
  void add(const Mlp& mlp) {
    if (mlp.quantized) return;
    if (const auto* dense = std::get_if<DenseMlp>(&mlp.kind)) add(dense->up), add(dense->down);
    if (const auto* gated = std::get_if<GatedMlp>(&mlp.kind)) add(*gated);
    if (const auto* experts = std::get_if<Experts>(&mlp.kind); experts && experts->shared) add(*experts->shared);
  }
  void add(const GatedMlp& mlp) {
    if (mlp.has_gate) add(mlp.gate);
    add(mlp.up), add(mlp.down);
  }
  void add(const DeltaNet& net) {
    for (const Linear* linear : {&net.query, &net.key, &net.value, &net.output_gate, &net.beta, &net.step, &net.out})
      add(*linear);
  }
  void add(const ShortConvolution& block) {
    for (const Linear* linear : {&block.before, &block.behind, &block.input, &block.out}) add(*linear);
  }
  void add(const StateSpace& block) {
    for (const Linear* linear : {&block.output_gate, &block.value, &block.write, &block.read, &block.step, &block.out})
      add(*linear);
  }
  void add(const Layer& layer) {
    if (layer.recurrent)
      std::visit([&](const auto& block) { add(block); }, layer.recurrent->kind);
    else if (layer.has_mixer)
      add(layer.attention);
    if (layer.cross) add(*layer.cross);
    for (const Mlp& mlp : layer.stacked) add(mlp);
    if (layer.has_mlp) add(layer.mlp);
    if (layer.beside) add(layer.beside->mlp);
  }

  AdapterTargets targets;
  std::set<const Param*> params;
};

}  // namespace

AdapterTargets adapter_targets(const Model& model) {
  Collector collector;
  for (const Stack& stack : model.stacks)
    for (const Layer& layer : stack.layers) collector.add(layer);
  for (const Param* param : model.params()) {  // a tensor of which something else reads a part
    if (collector.params.contains(param) || !param->tensor || !param->tensor->name.ends_with(suffix)) continue;
    const std::string& name = param->tensor->name;
    collector.targets.erase(name.substr(0, name.size() - suffix.size()));
  }
  return std::move(collector.targets);
}

std::map<std::string, std::string> bind_adapter(const Model& model, const AdapterTargets& targets,
                                                const checkpoint::AdapterFolder& adapter) {
  std::map<std::string, std::string> bound;
  std::map<std::string, std::string> taken;  // modules of the adapter by those of the model
  for (const auto& [module, matrix] : adapter.matrices()) {
    const auto& [name, target] =
        *find_module(targets, adapter, module,
                     " is no matrix of " + model.architecture +
                         " that adapters may change: attention's and feed-forward projections of its layers");
    const auto [other, fresh] = taken.emplace(name, module);
    if (!fresh) refuse_adapter(adapter, "modules " + other->second + " and " + module + " are both " + name);
    const int64_t in = matrix.a.shape[1], out = matrix.b.shape[0];
    if (in != target.in || out != target.out)
      refuse_adapter(adapter, "module " + module + " has factors of a matrix [" + std::to_string(out) + ", " +
                                  std::to_string(in) + "], and " + name + " of the base model is [" +
                                  std::to_string(target.out) + ", " + std::to_string(target.in) + "]");
    bound[module] = name;
  }
  if (!adapter.adapts_all_layers()) return bound;
  for (const auto& [name, target] : targets)
    for (const std::string& ending : adapter.targets())
      if (ends_in(name, ending) && !taken.contains(name))
        refuse_adapter(adapter, "target_modules names " + ending + ", and the file has no factors of " + name);
  return bound;
}

Arrays read_factors(const Model& model, const AdapterTargets& targets, const checkpoint::AdapterFolder& adapter) {
  Arrays factors;
  for (const auto& [module, name] : bind_adapter(model, targets, adapter)) {
    const checkpoint::AdapterMatrix& matrix = adapter.matrices().at(module);
    factors[name + ".a"] = {matrix.a.shape, adapter.read(matrix.a)};
    std::vector<float> b = adapter.read(matrix.b);
    for (float& value : b) value = static_cast<float>(value * matrix.scale);
    if (!std::all_of(b.begin(), b.end(), [](float value) { return std::isfinite(value); }))
      refuse_adapter(adapter, "module " + module + " has a scale that makes infinities of its factors");
    factors[name + ".b"] = {matrix.b.shape, std::move(b)};
  }
  return factors;
}

int64_t adapter_elements(const AdapterTargets& targets, int64_t rank) {
  int64_t elements = 0;
  for (const auto& [name, target] : targets)
    elements += rank * (static_cast<int64_t>(target.params.size()) * target.in + target.out);
  return elements;
}

}  // namespace pm::policy
