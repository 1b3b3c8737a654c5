// SPDX-License-Identifier: Apache-2.0
// Builder: stacks that join the states of two others, and their layers.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

/// Returns the names of the two stacks that the stack joins, or nothing.
std::vector<std::string> Builder::joins(const Context& context) const {
  const Node& section = *context.section;
  const Node* joins = section.get("joins");
  for (const char* key : {"co_attention", "second"}) {
    if (!joins == !section.get(key)) continue;
    refuse_policy(section,
                  std::string("\"joins\", \"co_attention\" and \"second\" stand together, and the stack has ") +
                      (joins ? "no \"" : "\"") + key + "\" " + (joins ? "beside" : "without") + " \"joins\"");
  }
  if (!joins) return {};
  if (const Node* input = section.get("input"))
    refuse_policy(*input, "a stack that joins two others has no \"input\" of its own");
  const std::vector<std::string> names = texts_of(joins);
  if (names.size() != 2 || names[0] == names[1] || !contexts_.contains(names[0]) || !contexts_.contains(names[1]) ||
      names[0] == context.scope.stack || names[1] == context.scope.stack)
    refuse_policy(*joins, "\"joins\" needs two stacks that stand above this one");
  for (const std::string& name : names) {
    const int64_t width = contexts_.at(name).sizes.hidden;
    if (width == context.sizes.hidden) continue;
    throw Error(Reason::ModelUnreadable, joins->where() + ": config.json gives states of " + std::to_string(width) +
                                             " numbers in the stack \"" + name + "\" and of " +
                                             std::to_string(context.sizes.hidden) +
                                             " in the one that joins it; expected the same");
  }
  return names;
}

std::optional<CoAttention> Builder::co_attention(const Context& context, int64_t number, const std::string& path) {
  const Node *across = context.section->get("co_attention"), *second = context.section->get("second");
  if (!across || !second) return std::nullopt;
  const Node *attn = second->get("attn"), *ffn = second->get("mlp");
  if (!attn || !ffn) refuse_policy(*second, "\"second\" needs \"attn\" and \"mlp\"");
  CoAttention made;
  made.across = attention(context, *across, block_scope(context, *across, number), path + ".across", false);
  made.attention = attention(context, *attn, block_scope(context, *attn, number), path + ".attn", false);
  made.mlp = mlp(context, *ffn, block_scope(context, *ffn, number), path + ".mlp");
  return made;
}

}  // namespace pm::policy
