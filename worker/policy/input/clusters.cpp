// SPDX-License-Identifier: Apache-2.0
// Builder: a vocabulary in clusters, and the memory that a stack reads.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

constexpr size_t most_clusters = 64;
constexpr int64_t longest_memory = int64_t{1} << 20;

[[noreturn]] void unreadable(const Node& at, const std::string& message) {
  throw Error(Reason::ModelUnreadable, at.where() + ": " + message);
}

}  // namespace

std::vector<Builder::ClusterSize> Builder::cluster_sizes(const Context& context, const Node& section,
                                                         const Scope& scope) {
  const Node *ends = section.get("ends"), *divisor = section.get("divisor");
  if (!ends || !divisor) refuse_policy(section, "clusters need \"ends\" and \"divisor\"");
  nlohmann::json list = evaluate(*ends, scope.variables);
  if (!list.is_array() || list.size() >= most_clusters)
    unreadable(*ends, "config.json gives " + list.dump() + " as the ends of clusters, expected a list of at most " +
                          std::to_string(most_clusters - 1) + " ids");
  list.push_back(context.sizes.vocab);
  const int64_t by = evaluate_int(*divisor, scope.variables);
  std::vector<ClusterSize> sizes;
  int64_t first = 0, width = context.sizes.embedding;
  for (const nlohmann::json& end : list) {
    if (!end.is_number_integer() || end.get<int64_t>() <= first || end.get<int64_t>() > context.sizes.vocab)
      unreadable(*ends, "config.json gives clusters that end at " + list.dump() +
                            ", expected ascending ids up to the size of the vocabulary");
    if (by < 1 || width < 1)
      unreadable(*divisor, "config.json gives embeddings of " + std::to_string(context.sizes.embedding) +
                               " that are divided by " + std::to_string(by) + " for each of " +
                               std::to_string(list.size()) + " clusters; nothing is left of the last");
    sizes.push_back({end.get<int64_t>() - first, width});
    first = end.get<int64_t>();
    width /= by;
  }
  return sizes;
}

Param Builder::cluster_projection(const Context& context, const Node& section, const Scope& scope,
                                  const std::string& path, int64_t width) {
  const std::optional<Binding> row = binder_.binding(section.get("projection"), scope.variables);
  if (!row || !row->names()) refuse_policy(section, "clusters need a \"projection\"");
  const ParamRequest request{.role = Role::EmbeddingProjection, .path = path, .shape = {context.sizes.hidden, width}};
  return binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope).value_or(Param{});
}

void Builder::token_clusters(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                             Input& input) {
  const Node* node = section.get("clusters");
  if (!binder_.binding(node, scope.variables)) return;
  if (section.get("token")) refuse_policy(*node, "\"clusters\" and \"token\" exclude each other");
  const std::vector<ClusterSize> sizes = cluster_sizes(context, *node, scope);
  for (size_t i = 0; i < sizes.size(); ++i) {
    Scope own = scope;
    own.variables.layer = static_cast<int64_t>(i);
    const std::optional<Binding> row = binder_.binding(node->get("table"), own.variables);
    if (!row || !row->names()) refuse_policy(*node, "clusters of tokens need a \"table\"");
    const std::string name = path + "clusters." + std::to_string(i);
    const ParamRequest request{.role = Role::TokenEmbedding,
                               .path = i == 0 ? path + "token" : name,
                               .shape = {sizes[i].ids, sizes[i].width},
                               .units = sizes[i].ids};
    std::optional<Param> table = binder_.bind(request, binder_.names(*row->names(), own, ".weight"), *row, own);
    TokenCluster cluster;
    cluster.projection = cluster_projection(context, *node, own, name + ".projection", sizes[i].width);
    (i == 0 ? input.token : cluster.table) = std::move(table);
    input.clusters.push_back(std::move(cluster));
  }
}

ClustersSpec Builder::score_clusters(const HeadScope& at) {
  const Node& section = *at.section.get("score_clusters");
  if (!section.get("scores")) refuse_policy(section, "clusters of scores need \"scores\"");
  const std::vector<ClusterSize> sizes = cluster_sizes(at.context, section, at.scope);
  ClustersSpec spec;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Scope own = at.scope;
    own.variables.layer = static_cast<int64_t>(i);
    const std::string path = at.path + ".clusters." + std::to_string(i);
    ScoreCluster& cluster = spec.clusters.emplace_back();
    cluster.projection = cluster_projection(at.context, section, own, path + ".projection", sizes[i].width);
    const ParamRequest rows{.role = Role::LogitsWeight,
                            .path = path + ".scores",
                            .shape = {sizes[i].ids, sizes[i].width},
                            .units = sizes[i].ids};
    if (auto made = linear(at.context, section.get("scores"), nullptr, own, rows, Role::LogitsBias, true))
      cluster.scores = std::move(*made);
  }
  if (sizes.size() == 1) return spec;
  if (!section.get("others")) refuse_policy(section, "several clusters of scores need \"others\"");
  const ParamRequest others{.role = Role::ClassWeight,
                            .path = at.path + ".clusters.others",
                            .shape = {static_cast<int64_t>(sizes.size()) - 1, sizes[0].width}};
  spec.others = linear(at.context, section.get("others"), nullptr, at.scope, others, Role::ClassBias, true);
  return spec;
}

std::optional<Memory> Builder::memory(const Context& context) {
  const Node* node = context.layer ? context.layer->get("memory") : nullptr;
  if (!binder_.binding(node, context.scope.variables)) return std::nullopt;
  const Node *length = node->get("length"), *input = node->get("input");
  if (!length || !input) refuse_policy(*node, "a memory needs \"length\" and \"input\"");
  Memory made{.length = evaluate_int(*length, context.scope.variables), .input = input->text};
  if (made.length < 1 || made.length > longest_memory)
    unreadable(*length, "config.json gives a memory of " + std::to_string(made.length) + " tokens, expected 1 to " +
                            std::to_string(longest_memory));
  return made;
}

}  // namespace pm::policy
