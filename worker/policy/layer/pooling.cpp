// SPDX-License-Identifier: Apache-2.0
// Builder: what makes the rows of a sequence fewer before a layer, and as many as tokens again.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// The maximum number of rows that stand for one.
constexpr int64_t most_stride = int64_t{1} << 20;

bool flag(const Node& section, std::string_view key, const Scope& scope) {
  const Node* node = section.get(key);
  return node && evaluate_bool(*node, scope.variables);
}

}  // namespace

std::optional<Pooling> Builder::pooling(const Context& context, const Scope& scope) {
  const Node* node = context.layer ? context.layer->get("pooling") : nullptr;
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  Pooling made;
  if (const Node* kind = node->get("kind"))
    made.kind = parse_keyword(*kind, scope.variables, pooling_words) == "max" ? PoolingKind::Max : PoolingKind::Mean;
  made.class_apart = flag(*node, "class_apart", scope);
  made.truncate = flag(*node, "truncate", scope);
  made.queries_only = flag(*node, "queries_only", scope);
  return made;
}

std::optional<Upsampling> Builder::upsampling(const Context& context, int64_t number, const Scope& scope) {
  const Node* node = context.layer ? context.layer->get("upsampling") : nullptr;
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  const Node *stride = node->get("stride"), *added = node->get("added_layer");
  if (!stride || !added) refuse_policy(*node, "upsampling needs \"stride\" and \"added_layer\"");
  Upsampling made{.stride = evaluate_int(*stride, scope.variables),
                  .added_layer = evaluate_int(*added, scope.variables),
                  .class_apart = flag(*node, "class_apart", scope)};
  if (made.stride < 1 || made.stride > most_stride || made.added_layer < 0 || made.added_layer > number)
    throw Error(Reason::ModelUnreadable, node->where() + ": config.json gives a stride of " +
                                             std::to_string(made.stride) + " and the states of layer " +
                                             std::to_string(made.added_layer) + "; expected a stride of 1 to " +
                                             std::to_string(most_stride) +
                                             " and a layer up to the number of this one, " + std::to_string(number));
  return made;
}

/// Lets queries have a projection of their own in all layers of a stack that has a memory, or of which one pools
/// queries only: layers may share their weights.
void Builder::set_queries_apart(Stack& stack) {
  bool apart = stack.memory.has_value();
  for (const Layer& layer : stack.layers) apart = apart || (layer.pooling && layer.pooling->queries_only);
  for (Layer& layer : stack.layers) layer.attention.queries_apart = apart;
}

}  // namespace pm::policy
