// SPDX-License-Identifier: Apache-2.0
// Builder: layers of one stack whose heads differ, and layers that attend to keys and values of an earlier one.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

/// Returns whether both have heads of one size in groups of one size, so that they are partitioned by the same rule.
bool are_alike(const Attention& a, const Attention& b) {
  return a.head_dim == b.head_dim && a.heads / a.kv_heads == b.heads / b.kv_heads;
}

/// Gives all parameters of a block the layout of its heads.
void set_layout(Attention& attention, int layout) {
  attention.layout = layout;
  ParamCollector all;
  attention.collect(all);
  for (const Param* param : all.params()) const_cast<Param*>(param)->layout = layout;  // the block is mutable here
}

}  // namespace

/// Returns the last earlier layer that has keys and values of its own and the same value of `like`, for a layer where
/// `when` is true.
std::optional<int64_t> Builder::reused_layer(const Node& attention, const Scope& scope) const {
  const Node* section = attention.get("reuses");
  if (!section) return std::nullopt;
  const Node *when = section->get("when"), *like = section->get("like");
  if (!when) refuse_policy(*section, "\"reuses\" needs \"when\", true for layers without keys of their own");
  if (!evaluate_bool(*when, scope.variables)) return std::nullopt;
  const auto kind = [&](const Variables& variables) {
    return like ? evaluate(*like, variables, /*nullable=*/true) : nlohmann::json();
  };
  const nlohmann::json own = kind(scope.variables);
  for (int64_t number = scope.layer - 1; number >= 0; --number) {
    Variables earlier = scope.variables;
    earlier.layer = number;
    if (!evaluate_bool(*when, earlier) && kind(earlier) == own) return number;
  }
  throw Error(Reason::ModelUnreadable, section->where() + ": layer " + std::to_string(scope.layer) +
                                           " attends to keys and values of an earlier layer of its kind " + own.dump() +
                                           ", and config.json gives none before it");
}

/// Numbers the layouts of heads: 0 is that of the first layer. Layers of a further one are alike in all numbers.
void Builder::set_layouts(const Node& section, Stack& stack) {
  std::vector<const Attention*> others;  // the first of each further layout
  for (Layer& layer : stack.layers) {
    Attention& own = layer.attention;
    if (are_alike(stack.layers.front().attention, own)) continue;
    const auto same = std::find_if(others.begin(), others.end(), [&](const Attention* other) {
      return are_alike(*other, own) && other->heads == own.heads;
    });
    const auto layout = static_cast<int>(same - others.begin()) + 1;
    if (layout > max_layouts)
      throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives layers of more than " +
                                               std::to_string(max_layouts + 1) +
                                               " different numbers and sizes of heads");
    if (same == others.end()) others.push_back(&own);
    set_layout(own, layout);
  }
  for (const Layer& layer : stack.layers) {
    if (!layer.attention.reuses) continue;
    Attention& read = stack.layers[static_cast<size_t>(*layer.attention.reuses)].attention;
    if (read.heads != layer.attention.heads || read.layout != layer.attention.layout || read.reuses)
      throw Error(Reason::ModelUnreadable, section.where() + ": a layer attends to keys and values of layer " +
                                               std::to_string(*layer.attention.reuses) +
                                               ", whose heads are of another number or size than its own");
    read.reused_as = layer.attention.reuses;
  }
}

}  // namespace pm::policy
