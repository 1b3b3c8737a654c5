// SPDX-License-Identifier: Apache-2.0
// Builder: norms of all queries and of all keys of a token.
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// Returns whether the norm `key` of a section is over the whole projection.
bool over_projection(const Node& section, const char* key, const Variables& variables) {
  const Node* row = section.get(key);
  const Node* over = row && row->is_map() ? row->get("over") : nullptr;
  return over && parse_keyword(*over, variables, over_words) == "projection";
}

}  // namespace

std::optional<ProjectionNorms> Builder::projection_norms(const Context& context, const Node& section,
                                                         const Scope& scope, const std::string& path,
                                                         const Attention& a) {
  const bool query = over_projection(section, "query_norm", scope.variables),
             key = over_projection(section, "key_norm", scope.variables);
  if (!query && !key) return std::nullopt;
  if (query != key) refuse_policy(section, "query_norm and key_norm have to be over the same: heads or projection");
  const auto made = [&](const char* name, Role role, int64_t heads, int64_t units) {
    const ParamRequest request{.role = role,
                               .path = path + "." + name + ".weight",
                               .shape = {heads * a.head_dim},
                               .units = units,
                               .block = units == heads ? 1 : a.head_dim};
    std::optional<Norm> norm = this->norm(context, &section, scope, request, name);
    if (!norm || norm->kind != NormKind::Rms || norm->bias)
      refuse_policy(*section.get(name), std::string(name) + " over a projection has to be an RMS norm without a bias");
    return *std::move(norm);
  };
  return ProjectionNorms{made("query_norm", Role::QueryBias, a.heads, a.heads),
                         made("key_norm", Role::KeyBias, a.kv_heads, a.kv_heads * a.head_dim)};
}

}  // namespace pm::policy
