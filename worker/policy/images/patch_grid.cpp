// SPDX-License-Identifier: Apache-2.0
// Builder: patches of images, of one size or of any.
#include <cmath>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message + " with this config.json");
}

}  // namespace

void Builder::patches(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                      Input& input) {
  const Node* patches = section.get("patches");
  if (!patches || input.projection) return;
  const Node *channels = patches->get("channels"), *size = patches->get("size"), *frames = patches->get("frames"),
             *sizes = patches->get("sizes");
  if (!channels || !size) refuse_policy(*patches, "patches need \"channels\" and \"size\"");
  const auto [height, width] = height_and_width(*size, scope.variables);
  std::vector<int64_t> shape{context.sizes.hidden, evaluate_int(*channels, scope.variables), height, width};
  if (frames || sizes) input.patch_grid = patch_grid(context, *patches, scope, path + "patches.");
  if (sizes) input.patch_grid->sizes = sizes->text;
  if (frames) shape.insert(shape.begin() + 2, evaluate_int(*frames, scope.variables));
  const ParamRequest request{.role = Role::PatchProjection, .path = path + "patches", .shape = std::move(shape)};
  input.projection = linear(context, patches, nullptr, scope, request, Role::HeadDenseBias, true);
}

PatchGrid Builder::patch_grid(const Context& context, const Node& patches, const Scope& scope,
                              const std::string& path) {
  PatchGrid grid;
  if (const Node* merge = patches.get("merge")) grid.merge = evaluate_int(*merge, scope.variables);
  if (const Node* window = patches.get("window")) grid.window = evaluate_int(*window, scope.variables);
  if (grid.merge < 1 || grid.window < 0)
    unreadable(patches, "squares have a side of " + std::to_string(grid.merge) + " patches, windows one of " +
                            std::to_string(grid.window) + " squares, expected 1 or more and 0 (none) or more,");
  const std::optional<Binding> row = binder_.binding(patches.get("positions"), scope.variables);
  if (!row || !row->names()) return grid;
  const Node* rows = row->option("rows");
  if (!rows) refuse_policy(*row->node, "positions of patches need \"rows\"");
  const int64_t count = evaluate_int(*rows, scope.variables);
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(0, count)))));
  if (side < 1 || side * side != count)
    unreadable(*rows, "the table of positions has " + std::to_string(count) + " rows, expected those of a square,");
  const ParamRequest table{.role = Role::PositionEmbedding,
                           .path = path + "positions",
                           .shape = {count, context.sizes.hidden},
                           .units = count};
  grid.positions = binder_.bind(table, binder_.names(*row->names(), scope, ".weight"), *row, scope);
  return grid;
}

}  // namespace pm::policy
