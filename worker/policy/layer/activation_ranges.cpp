// SPDX-License-Identifier: Apache-2.0
// Builder: the ranges of integer-only inference.
#include <algorithm>

#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<Binding> Builder::quantized_entry(const Node& section, std::string_view key, const Scope& scope) {
  const Node* entry = section.get(key);
  const bool named = entry && (!entry->is_map() || entry->get("from"));
  if (!named) refuse_policy(section, "\"quantized\" needs the name of \"" + std::string(key) + "\"");
  return binder_.binding(entry, scope.variables);
}

ActivationRange Builder::range(const Binding& row, const Scope& scope, const std::string& path) {
  const auto bound = [&](const char* end, const char* suffix) {
    const ParamRequest request{.role = Role::Scalar, .path = path + end, .shape = {}};
    return binder_.bind(request, binder_.names(*row.names(), scope, suffix), row, scope).value_or(Param{});
  };
  ActivationRange made;
  made.low = bound(".low", ".x_min");
  made.high = bound(".high", ".x_max");
  return made;
}

ActivationRange Builder::range(const Node& section, std::string_view key, const Scope& scope, const std::string& path) {
  return range(*quantized_entry(section, key, scope), scope, path + "." + std::string(key));
}

/// Binds the shift of a norm, where it computes in integers.
std::optional<Param> Builder::shift(const Node& section, const Scope& scope, const std::string& path) {
  const std::optional<Binding> row = quantized_entry(section, "shift", scope);
  if (!row) return std::nullopt;
  const ParamRequest request{.role = Role::Scalar, .path = path + ".shift", .shape = {}};
  return binder_.bind(request, binder_.names(*row->names(), scope, ".shift"), *row, scope).value_or(Param{});
}

std::optional<QuantizedInput> Builder::quantized_input(const Node& input, const Scope& scope, const std::string& path) {
  const std::optional<Binding> node = binder_.binding(input.get("quantized"), scope.variables);
  if (!node) return std::nullopt;
  QuantizedInput made;
  made.sum = range(*node->node, "sum", scope, path);
  made.output = range(*node->node, "output", scope, path);
  made.shift = shift(*node->node, scope, path);
  return made;
}

std::optional<QuantizedAttention> Builder::quantized_attention(const Node& attention, const Scope& scope,
                                                               const std::string& path) {
  const std::optional<Binding> node = binder_.binding(attention.get("quantized"), scope.variables);
  if (!node) return std::nullopt;
  const auto of = [&](std::string_view key) { return range(*node->node, key, scope, path); };
  QuantizedAttention made;
  made.query = of("query");
  made.key = of("key");
  made.value = of("value");
  if (const std::optional<Binding> row = quantized_entry(*node->node, "exponents", scope))
    made.exponents = range(*row, scope, path + ".exponents");
  made.heads = of("heads");
  made.sum = of("sum");
  made.output = of("output");
  made.shift = shift(*node->node, scope, path);
  return made;
}

std::optional<QuantizedMlp> Builder::quantized_mlp(const Node& mlp, const Scope& scope, const std::string& path) {
  const std::optional<Binding> node = binder_.binding(mlp.get("quantized"), scope.variables);
  if (!node) return std::nullopt;
  const auto of = [&](std::string_view key) { return range(*node->node, key, scope, path); };
  QuantizedMlp made;
  made.input = of("input");
  made.activation = of("activation");
  made.down = of("down");
  if (const Node* floats = node->node->get("float_activation"))
    made.float_activation = evaluate_bool(*floats, scope.variables);
  made.sum = of("sum");
  made.output = of("output");
  made.shift = shift(*node->node, scope, path);
  return made;
}

/// Gives every layer the range of the stack's input, whose storage it shares: a later pipeline stage has it too.
void Builder::set_input_ranges(const Node& section, Stack& stack) {
  const auto is_quantized = [](const Layer& layer) { return layer.attention.quantized && layer.mlp.quantized; };
  const auto is_mixed = [](const Layer& layer) { return layer.attention.quantized || layer.mlp.quantized; };
  const bool all = std::all_of(stack.layers.begin(), stack.layers.end(), is_quantized),
             any = std::any_of(stack.layers.begin(), stack.layers.end(), is_mixed);
  if (stack.input.quantized ? !all : any)
    refuse_policy(section,
                  "\"quantized\" stands in the input, the attention and the MLP of all layers of a stack, or "
                  "in none of them");
  if (!stack.input.quantized) return;
  for (size_t number = 0; number < stack.layers.size(); ++number) {
    ActivationRange& own = stack.layers[number].attention.quantized->input;
    own = stack.input.quantized->output;
    const std::string path = stack.name + ".layers." + std::to_string(number) + ".attn.quantized.input.";
    for (auto [param, end] : {std::pair{&own.low, "low"}, {&own.high, "high"}}) {
      if (param->shares.empty()) param->shares = param->path;
      param->path = path + end;
      param->layer = static_cast<int>(number);
    }
  }
}

}  // namespace pm::policy
