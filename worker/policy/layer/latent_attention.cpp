// SPDX-License-Identifier: Apache-2.0
// Builder: multi-head latent attention.
#include <array>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

/// Entries of an attention that say something else of its queries, keys and values.
constexpr std::array<std::string_view, 9> excluded{"qkv",        "kv",       "k",          "v",     "q_gate",
                                                   "query_norm", "key_norm", "value_norm", "reuses"};

}  // namespace

bool Builder::latent_projections(const Context& context, const Node& section, const Scope& scope,
                                 const std::string& path, Attention& a) {
  const Node* node = section.get("latent");
  if (!binder_.binding(node, scope.variables)) return false;
  for (const std::string_view key : excluded)
    if (section.get(key)) refuse_policy(*node, "attention with \"latent\" has no \"" + std::string(key) + "\"");
  for (const char* key : {"rank", "kv_down", "kv_norm", "kv_up"})
    if (!node->get(key)) refuse_policy(*node, std::string("latent needs \"") + key + "\"");
  if (node->get("q_norm") && !node->get("q_down")) refuse_policy(*node, "\"q_norm\" is of what \"q_down\" makes");
  if (!section.get("q")) refuse_policy(section, "attention with \"latent\" needs \"q\"");
  if (a.value_dim == 0) refuse_policy(section, "attention with \"latent\" needs \"value_dim\"");
  LatentAttention& latent = a.latent.emplace();
  latent.rank = small_size(*node, "rank", scope);
  latent.rotary_dims = a.rotary ? a.rotary->dims : 0;
  const int64_t own = a.head_dim - latent.rotary_dims;
  if (latent.rotary_dims == 0 || own < 1 || a.kv_heads != a.heads)
    throw Error(Reason::ModelUnreadable,
                node->where() + ": config.json gives " + std::to_string(a.heads) + " heads of size " +
                    std::to_string(a.head_dim) + " and " + std::to_string(a.kv_heads) + " kv heads, of which " +
                    std::to_string(latent.rotary_dims) +
                    " dimensions are rotated; expected as many of both, and some dimensions that are rotated and "
                    "some that are not");
  int64_t read = context.sizes.hidden;  // by the queries
  const ParamRequest query_down{.role = Role::LatentWeight, .path = path + ".query_down", .shape = {-1, read}};
  latent.query_down = linear(context, node->get("q_down"), &section, scope, query_down, Role::LatentBias);
  if (latent.query_down) {
    read = latent.query_down->weight.tensor ? latent.query_down->weight.shape[0] : -1;
    latent.query_norm = norm(context, node, scope, path + ".query_norm", read, "q_norm");
  }
  const ParamRequest query{
      .role = Role::QueryWeight, .path = path + ".query", .shape = {a.heads * a.head_dim, read}, .units = a.heads};
  if (auto made = linear(context, section.get("q"), &section, scope, query, Role::QueryBias))
    a.query = std::move(*made);
  const ParamRequest down{
      .role = Role::LatentWeight, .path = path + ".latent", .shape = {latent.width(), context.sizes.hidden}};
  if (auto made = linear(context, node->get("kv_down"), &section, scope, down, Role::LatentBias))
    latent.down = std::move(*made);
  if (auto made = norm(context, node, scope, path + ".latent_norm", latent.rank, "kv_norm")) latent.norm = *made;
  const auto up = [&](Role role, const char* name, int part, int64_t rows, int64_t before) {
    const ParamRequest request{.role = role,
                               .path = path + name,
                               .shape = {a.heads * rows, latent.rank},
                               .units = a.heads,
                               .fused = Fused::Strided,
                               .part = part,
                               .parts = 2,
                               .stored_rows = a.heads * (own + a.value_dim),
                               .offset = before,
                               .stride = own + a.value_dim};
    auto made = linear(context, node->get("kv_up"), &section, scope, request, Role::LatentBias);
    if (made && made->bias) refuse_policy(*node, "\"kv_up\" has no bias");
    return made ? *std::move(made) : Linear{};
  };
  a.key = up(Role::LatentKey, ".key", 0, own, 0);
  a.value = up(Role::LatentValue, ".value", 1, a.value_dim, own);
  return true;
}

}  // namespace pm::policy
