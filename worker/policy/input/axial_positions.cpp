// SPDX-License-Identifier: Apache-2.0
// Builder: positions in rows of a grid.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<AxialPositions> Builder::axial_positions(const Context& context, const Node& position, const Scope& scope,
                                                       const std::string& path) {
  const Node* node = position.get("axial");
  if (!node) return std::nullopt;
  if (const Node* when = node->get("when"); when && !evaluate_bool(*when, scope.variables)) return std::nullopt;
  const int64_t rows = small_size(*node, "rows", scope), columns = small_size(*node, "columns", scope),
                width = small_size(*node, "width", scope), all = context.sizes.embedding;
  if (width >= all)
    throw Error(Reason::ModelUnreadable, node->where() + ": config.json gives " + std::to_string(width) +
                                             " columns to the first part of positions, expected less than the " +
                                             std::to_string(all) + " of an embedding");
  const auto table = [&](const char* key, int64_t count, int64_t part) {
    const std::optional<Binding> row = binder_.binding(node->get(key), scope.variables);
    if (!row || !row->names()) refuse_policy(*node, "axial positions need \"row\" and \"column\"");
    const ParamRequest request{.role = Role::PositionEmbedding,
                               .path = path + key,
                               .shape = {count, part},
                               .units = count,
                               .head_dim = part};  // the first table is stored as [rows, 1, width]
    return binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
  };
  AxialPositions made{.rows = table("row", rows, width), .columns = {}};
  made.columns = table("column", columns, all - width);
  return made;
}

}  // namespace pm::policy
