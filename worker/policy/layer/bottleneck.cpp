// SPDX-License-Identifier: Apache-2.0
// Builder: the bottleneck around the blocks of a layer.
#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<Bottleneck> Builder::bottleneck(const Context& context, int64_t number, const std::string& path) {
  const Node* node = context.layer ? context.layer->get("bottleneck") : nullptr;
  Scope scope = context.scope;
  scope.layer = static_cast<int>(number);
  scope.variables.layer = number;
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  if (!node->get("input") || !node->get("output")) refuse_policy(*node, "a bottleneck needs \"input\" and \"output\"");
  if (const Node* at = context.layer->get("at")) binder_.enter(*at, scope);
  Bottleneck made;
  const int64_t hidden = context.sizes.hidden, width = made.width = small_size(*node, "width", scope);
  if (const Node* wide = node->get("wide")) made.wide = evaluate_bool(*wide, scope.variables);
  // ranks share the outputs, which are gathered: an exchange of a narrow state costs less than the matrix on every rank
  const auto row = [&](const char* key, int64_t out, int64_t in) {
    const ParamRequest request{
        .role = Role::BottleneckWeight, .path = path + "." + key, .shape = {out, in}, .units = out};
    return linear(context, node->get(key), nullptr, scope, request, Role::BottleneckBias);
  };
  made.input = row("input", width, hidden).value_or(Linear{});
  made.input_norm = norm(context, node, scope, path + ".input_norm", width, "input_norm");
  made.attention = row("attention", width, hidden);
  if (made.attention && !made.wide)
    refuse_policy(*node, "a bottleneck whose attention reads narrow states has no \"attention\"");
  if (made.attention)
    made.attention_norm = norm(context, node, scope, path + ".attention_norm", width, "attention_norm");
  made.output = row("output", hidden, width).value_or(Linear{});
  made.output_norm = norm(context, node, scope, path + ".output_norm", hidden, "output_norm");
  return made;
}

Builder::Context Builder::inside(const Context& context, const Bottleneck& bottleneck) {
  Context inner = context;
  inner.sizes.hidden = bottleneck.width;
  if (!bottleneck.wide) return inner;
  inner.value_width = context.sizes.hidden;
  inner.query_width = bottleneck.attention ? bottleneck.width : context.sizes.hidden;
  return inner;
}

}  // namespace pm::policy
