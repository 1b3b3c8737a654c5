// SPDX-License-Identifier: Apache-2.0
// Builder: streams that predict following tokens, and what queries say of distances.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<Param> Builder::streams(const Context& context, const Node& section, const Scope& scope,
                                      const std::string& path) {
  const Node* node = section.get("streams");
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  if (!row->names() || !row->option("count")) refuse_policy(*node, "streams need \"from\" and \"count\"");
  const int64_t count = small_size(*node, "count", scope);
  const ParamRequest request{.role = Role::IndexTable, .path = path, .shape = {count, context.sizes.embedding}};
  return binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope);
}

std::optional<Targets> Builder::targets(const Context& context, const Node& section, const Scope& scope,
                                        const std::string& path) {
  const Node* node = section.get("targets");
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  const Node *mapping = node->is_map() ? node->get("mapping") : nullptr,
             *hidden = node->is_map() ? node->get("hidden") : nullptr;
  if (!row->names() || !mapping || !hidden) refuse_policy(*node, "targets need \"from\", \"mapping\" and \"hidden\"");
  const ParamRequest request{.role = Role::ExtraToken, .path = path, .shape = {context.sizes.hidden}};
  const std::optional<Param> state = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope);
  return state ? std::optional(Targets{*state, mapping->text, hidden->text}) : std::nullopt;
}

std::optional<ContentBuckets> Builder::content_buckets(const Context& context, const Node& section, const Scope& scope,
                                                       const std::string& path, const Attention& a) {
  const Node* node = section.get("content_buckets");
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  ContentBuckets made;
  for (auto [key, size] : {std::pair{"num_buckets", &made.num_buckets}, {"max_distance", &made.max_distance}})
    if (node->is_map() && node->get(key)) *size = small_size(*node, key, scope);
  if (made.num_buckets < 2 || made.max_distance <= made.num_buckets / 2)
    throw Error(Reason::ModelUnreadable,
                node->where() + ": config.json gives " + std::to_string(made.num_buckets) + " buckets and " +
                    std::to_string(made.max_distance) +
                    " as the maximum distance; expected at least 2 buckets, and a distance of more than half of them");
  if (const Node* swapped = node->is_map() ? node->get("swapped_in_streams") : nullptr)
    made.swapped_in_streams = evaluate_bool(*swapped, scope.variables);
  const ParamRequest request{.role = Role::BucketWeight,
                             .path = path + ".content_buckets",
                             .shape = {made.num_buckets * a.heads, context.sizes.hidden},
                             .units = a.heads,
                             .segments = made.num_buckets};
  if (auto bound = linear(context, node, &section, scope, request, Role::BucketBias)) made.linear = std::move(*bound);
  return made;
}

}  // namespace pm::policy
