// SPDX-License-Identifier: Apache-2.0
// Builder: projections in groups, and which keys a query sees.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/roles.h"

namespace pm::policy {

namespace {

/// The maximum size of a window or a block, and of the number of random blocks: products with sizes stay below 2^63.
constexpr int64_t most = int64_t{1} << 20;

int64_t checked(const Node& node, const char* what, int64_t value, int64_t least) {
  if (value < least || value > most)
    throw Error(Reason::ModelUnreadable, node.where() + ": config.json gives " + what + " = " + std::to_string(value) +
                                             ", expected " + std::to_string(least) + " to " + std::to_string(most));
  return value;
}

/// Reads a number, or that of the layer from a list with one per layer.
int64_t of_layer(const Node& node, const Variables& variables) {
  const nlohmann::json value = evaluate(node, variables);
  const auto layer = static_cast<size_t>(variables.layer.value_or(0));
  const bool listed = value.is_array() && layer < value.size();
  const nlohmann::json& own = listed ? value[layer] : value;
  if (!own.is_number_integer())
    throw Error(Reason::ModelUnreadable, node.where() + ": config.json gives " + value.dump() + " for layer " +
                                             std::to_string(layer) + ", expected a number or one per layer");
  return own.get<int64_t>();
}

}  // namespace

std::optional<Linear> Builder::projection(const Context& context, const Node* node, const Node& block,
                                          const Scope& scope, ParamRequest weight, Role bias_role) {
  if (const Node* groups = node && node->is_map() ? node->get("groups") : nullptr) {
    const int64_t count = evaluate_int(*groups, scope.variables), out = weight.shape[0], in = weight.shape[1];
    if (count < 1 || out % count != 0 || in % count != 0)
      throw Error(Reason::ModelUnreadable, groups->where() + ": the number of groups is " + std::to_string(count) +
                                               " with this config.json, expected a divisor of " + std::to_string(in) +
                                               " inputs and " + std::to_string(out) + " outputs");
    weight.diagonal_blocks = count;
    weight.shape[sharding_rule(weight.role).dim == 1 ? 0 : 1] /= count;
  }
  std::optional<Linear> made = linear(context, node, &block, scope, weight, bias_role);
  if (made && weight.diagonal_blocks > 1 && made->weight.conv1d)
    refuse_policy(*node, "\"groups\" and the layout conv1d exclude each other");
  return made;
}

/// Builds the projection of global tokens that corresponds to the role's.
Linear Builder::global_projection(const Context& context, const Node& section, const Node& window, const Scope& scope,
                                  const std::string& path, const Attention& a, Role role) {
  const bool query = role == Role::QueryWeight, key = role == Role::KeyWeight;
  const char* name = query ? "global_q" : key ? "global_k" : "global_v";
  if (!window.get(name)) refuse_policy(window, std::string("a sliding window needs \"") + name + "\"");
  const int64_t rows = (query ? a.heads : a.kv_heads) * a.head_dim;
  const ParamRequest request{.role = role,
                             .path = path + "." + name,
                             .shape = {rows, context.sizes.hidden},
                             .units = query ? a.heads : rows,
                             .block = query ? 1 : a.head_dim};
  const Role bias = query ? Role::QueryBias : key ? Role::KeyBias : Role::ValueBias;
  return linear(context, window.get(name), &section, scope, request, bias).value_or(Linear{});
}

Pattern Builder::pattern(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                         const Attention& a) {
  const Node *window = section.get("sliding_window"), *blocks = section.get("block_sparse");
  if (window && window->is_map()) {
    const Node* size = window->get("size");
    if (!size) refuse_policy(*window, "a sliding window needs \"size\"");
    SlidingWindow pattern;
    pattern.size = checked(*size, "a window of size", of_layer(*size, scope.variables), 2);
    if (pattern.size % 2)
      throw Error(Reason::ModelUnreadable, size->where() + ": config.json gives a window of " +
                                               std::to_string(pattern.size) +
                                               " tokens, expected an even number: half of it on each side");
    pattern.key = global_projection(context, section, *window, scope, path, a, Role::KeyWeight);
    pattern.value = global_projection(context, section, *window, scope, path, a, Role::ValueWeight);
    pattern.query = global_projection(context, section, *window, scope, path, a, Role::QueryWeight);
    return pattern;
  }
  if (!blocks || !blocks->is_map()) return {};
  if (const Node* when = blocks->get("when"); when && !evaluate_bool(*when, scope.variables)) return {};
  const Node *block = blocks->get("block"), *random = blocks->get("random");
  if (!block || !random) refuse_policy(*blocks, "block_sparse needs \"block\" and \"random\"");
  return BlockSparse{checked(*block, "blocks of size", evaluate_int(*block, scope.variables), 1),
                     checked(*random, "random blocks", evaluate_int(*random, scope.variables), 0)};
}

}  // namespace pm::policy
