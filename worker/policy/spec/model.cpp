// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/model.h"

#include <algorithm>

#include "worker/base/error.h"

namespace pm::policy {

std::vector<PlacedParam> placed_params(const Model& model) {
  std::vector<PlacedParam> all;
  const auto append = [&](int place, const auto& add) {
    ParamCollector collector;
    add(collector);
    for (const Param* param : collector.params()) all.push_back({param, place});
  };
  for (const Stack& stack : model.stacks) {
    append(stack_input, [&](ParamCollector& collector) { stack.input.collect(collector); });
    int place = 0;
    for (const Layer& layer : stack.layers) {
      append(place++, [&](ParamCollector& collector) {
        layer.attention.collect(collector);
        if (layer.recurrent) layer.recurrent->collect(collector);
        if (layer.cross) layer.cross->collect(collector);
        if (layer.bottleneck) layer.bottleneck->collect(collector);
        for (const Mlp& mlp : layer.stacked) mlp.collect(collector);
        layer.mlp.collect(collector);
        if (layer.beside) {
          layer.beside->mlp.collect(collector);
          collector.add(layer.beside->first_norm);
        }
        if (layer.input) {
          collector.add(layer.input->gate);
          collector.add(layer.input->projection);
          collector.add(layer.input->norm);
        }
        collector.add(layer.factor);
        if (layer.branch) layer.branch->collect(collector);
        if (layer.co_attention) layer.co_attention->collect(collector);
      });
    }
    append(stack_output, [&](ParamCollector& collector) {
      collector.add(stack.output.norm);
      collector.add(stack.output.projection);
      collector.add(stack.output.cross_projection);
      if (stack.output.image_projector) stack.output.image_projector->collect(collector);
      for (const DeepProjector& deep : stack.output.deep_projectors) deep.projector.collect(collector);
      if (stack.output.queries) stack.output.queries->collect(collector);
      if (!stack.output.pooler) return;
      collector.add(stack.output.pooler->norm);
      collector.add(stack.output.pooler->dense);
    });
  }
  for (const Head& head : model.heads) append(stack_input, [&](ParamCollector& collector) { head.collect(collector); });
  return all;
}

bool has_experts(const Model& model) {
  return std::any_of(model.stacks.begin(), model.stacks.end(), [](const Stack& stack) {
    return std::any_of(stack.layers.begin(), stack.layers.end(), [](const Layer& layer) {
      return std::holds_alternative<Experts>(layer.mlp.kind) ||
             (layer.beside && std::holds_alternative<Experts>(layer.beside->mlp.kind));
    });
  });
}

void refuse_architecture(const Model& model, const std::string& what) {
  throw Error(Reason::UnknownArchitecture, model.architecture + " (" + model.model_type + ") " + what +
                                               ", which this version does not run; `families` lists what runs");
}

std::vector<const Param*> Model::params() const {
  std::vector<const Param*> all;
  for (const PlacedParam& one : placed_params(*this)) all.push_back(one.param);
  return all;
}

const Stack* Model::joining(std::string_view name) const {
  for (const Stack& stack : stacks)
    if (std::find(stack.joins.begin(), stack.joins.end(), name) != stack.joins.end()) return &stack;
  return nullptr;
}

const Stack* Model::stack(std::string_view name) const {
  for (const Stack& stack : stacks)
    if (stack.name == name) return &stack;
  return nullptr;
}

bool Model::takes_choices() const {
  return task == Task::MultipleChoice ||
         std::any_of(heads.begin(), heads.end(), [](const Head& head) { return head.pool() == Pool::ClsIndex; });
}

}  // namespace pm::policy
