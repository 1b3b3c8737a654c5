// SPDX-License-Identifier: Apache-2.0
// Builder: latents that read the input of a stack, and what reads them behind its last layer.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

CrossBlock Builder::cross_block(const Context& context, const Node& section, const Scope& scope,
                                const std::string& path, int64_t width, int64_t source_width) {
  const Node *attn = section.get("attn"), *ffn = section.get("mlp");
  if (!attn || !ffn || !section.get("ffn")) refuse_policy(section, "a cross block needs \"attn\", \"ffn\" and \"mlp\"");
  Context own = context;
  own.sizes.hidden = width;
  own.sizes.ffn = small_size(section, "ffn", scope);
  own.source_width = source_width;
  const auto inside = [&](const Node& block) {
    Scope inner = scope;
    if (const Node* at = block.get("at")) binder_.enter(*at, inner);
    return inner;
  };
  CrossBlock made;
  const Scope attention_scope = inside(*attn);
  made.attention = attention(own, *attn, attention_scope, path + ".attn", false);
  made.source_norm = norm(own, attn, attention_scope, path + ".attn.source_norm", source_width, "source_norm");
  if (const Node* adds = section.get("adds_queries")) made.adds_queries = evaluate_bool(*adds, scope.variables);
  made.mlp = mlp(own, *ffn, inside(*ffn), path + ".mlp");
  return made;
}

std::optional<Latents> Builder::latents(const Context& context, const Node& input, const Scope& scope,
                                        const std::string& path) {
  const Node* node = input.get("latents");
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  if (!row->names() || !row->option("count")) refuse_policy(*node, "latents need \"from\" and \"count\"");
  const int64_t count = small_size(*node, "count", scope);
  const ParamRequest request{
      .role = Role::PositionEmbedding, .path = path, .shape = {count, context.sizes.hidden}, .units = count};
  Latents made{
      .vectors = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{}),
      .block = {}};
  Scope inner = scope;
  if (const Node* at = node->get("at")) binder_.enter(*at, inner);
  made.block = cross_block(context, *node, inner, path, context.sizes.hidden, context.sizes.embedding);
  return made;
}

std::optional<OutputQueries> Builder::output_queries(const Context& context, const Node& output, const Scope& scope,
                                                     const std::string& path) {
  const Node* node = output.get("latent_queries");
  if (!node) return std::nullopt;
  const Node *from = node->get("from"), *width = node->get("width");
  Scope inner = scope;
  if (const Node* at = node->get("at")) binder_.enter(*at, inner);
  OutputQueries made{.vectors = {},
                     .width = width  ? small_size(*node, "width", inner)
                              : from ? context.sizes.hidden
                                     : context.sizes.embedding,
                     .block = {}};
  if (from) {
    if (!node->get("count")) refuse_policy(*node, "learned queries need \"from\" and \"count\"");
    const int64_t count = small_size(*node, "count", inner);
    const ParamRequest request{
        .role = Role::PositionEmbedding, .path = path, .shape = {count, made.width}, .units = count};
    made.vectors =
        binder_.bind(request, binder_.names(*from, inner, ".weight"), Binding{node}, inner).value_or(Param{});
  } else if (made.width != context.sizes.embedding) {
    throw Error(Reason::ModelUnreadable, node->where() + ": rows of the input are the queries; they are " +
                                             std::to_string(context.sizes.embedding) + " wide, config.json gives " +
                                             std::to_string(made.width));
  }
  made.block = cross_block(context, *node, inner, path, made.width, context.sizes.hidden);
  return made;
}

}  // namespace pm::policy
