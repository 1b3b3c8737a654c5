// SPDX-License-Identifier: Apache-2.0
// Builder: entities behind the tokens of a text, and their queries.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<Entities> Builder::entities(const Context& context, const Node& section, const std::string& path) {
  const Node* node = section.get("entities");
  if (!node) return std::nullopt;
  for (const char* key : {"input", "mask", "mentions", "table", "rows", "width", "positions", "position_rows"})
    if (!node->get(key)) refuse_policy(*node, std::string("entities need \"") + key + "\"");
  Scope scope = context.scope;
  if (const Node* at = node->get("at")) binder_.enter(*at, scope);
  const int64_t hidden = context.sizes.hidden, width = small_size(*node, "width", scope),
                rows = evaluate_int(*node->get("rows"), scope.variables),
                positions = small_size(*node, "position_rows", scope);
  if (rows < 1 || rows > int64_t{1} << 30)
    throw Error(Reason::ModelUnreadable,
                node->where() + ": config.json gives " + std::to_string(rows) + " entities, expected 1 to 2^30");
  Entities made{.input = node->get("input")->text,
                .mask = node->get("mask")->text,
                .mentions = node->get("mentions")->text,
                .table = {},
                .projection = {},
                .positions = {},
                .tables = {},
                .norm = {}};
  const auto table = [&](const char* key, Role role, int64_t count, int64_t columns, Param& target) {
    const std::optional<Binding> row = binder_.binding(node->get(key), scope.variables);
    if (!row || !row->names()) refuse_policy(*node, std::string("entities need \"") + key + "\"");
    const ParamRequest request{.role = role, .path = path + key, .shape = {count, columns}, .units = count};
    target = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  };
  table("table", Role::TokenEmbedding, rows, width, made.table);
  table("positions", Role::PositionEmbedding, positions, hidden, made.positions);
  const ParamRequest projection{
      .role = Role::EmbeddingProjection, .path = path + "projection", .shape = {hidden, width}};
  made.projection =
      linear(context, node->get("projection"), nullptr, scope, projection, Role::HeadDenseBias, /*outside=*/true);
  if (!made.projection && width != hidden && !binder_.is_dry_run())
    throw Error(Reason::ModelUnreadable, node->where() + ": config.json gives entities of " + std::to_string(width) +
                                             " numbers and states of " + std::to_string(hidden) +
                                             "; expected a projection");
  tables(*node, scope, path, hidden, made.tables);
  made.norm = norm(context, node, scope, path + "norm", hidden);
  return made;
}

std::optional<EntityQueries> Builder::entity_queries(const Context& context, const Node& section, const Scope& scope,
                                                     const std::string& path, const Attention& a) {
  const Node* node = section.get("entity_queries");
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  EntityQueries made;
  for (auto [key, target] : {std::pair{"word_to_entity", &made.word_to_entity},
                             {"entity_to_word", &made.entity_to_word},
                             {"entity_to_entity", &made.entity_to_entity}}) {
    if (!node->get(key)) refuse_policy(*node, std::string("entity_queries need \"") + key + "\"");
    const ParamRequest request{.role = Role::QueryWeight,
                               .path = path + ".entity_queries." + key,
                               .shape = {a.heads * a.head_dim, context.sizes.hidden},
                               .units = a.heads};
    if (auto bound = linear(context, node->get(key), &section, scope, request, Role::QueryBias))
      *target = std::move(*bound);
  }
  return made;
}

}  // namespace pm::policy
