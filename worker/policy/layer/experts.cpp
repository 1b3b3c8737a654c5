// SPDX-License-Identifier: Apache-2.0
// Builder: experts, the router that chooses among them, and the block that all tokens go through.
#include <algorithm>
#include <array>

#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

namespace {

/// Returns the value of an entry that has to be 1 to `most`; `absent` where there is no entry.
int64_t count_of(const Node& section, const char* key, const Scope& scope, int64_t most, int64_t absent) {
  const Node* node = section.get(key);
  const int64_t count = node ? evaluate_int(*node, scope.variables) : absent;
  if (count < 1 || count > most)
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives \"" + key + "\" the value " +
                                             std::to_string(count) + ", expected 1 to " + std::to_string(most));
  return count;
}

/// Experts of all layers that may lie in tensors together: else a small file could ask for very many parameters.
constexpr int64_t most_stacked_experts = int64_t{1} << 16;

void set_share(Linear& linear, RoutedShare share) {
  linear.weight.routed = share;
  if (linear.bias) linear.bias->routed = share;
}

}  // namespace

GatedMlp Builder::gated_block(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                              Activation activation) {
  const Node* width = section.get("width");
  if (!width) refuse_policy(section, "needs \"width\", the columns of a block");
  bool has_gate = false;
  GatedMlp block =
      feed_forward(context, section, scope, path, activation, evaluate_int(*width, scope.variables), has_gate);
  block.has_gate = has_gate;
  return block;
}

Router Builder::router(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                       int64_t experts) {
  if (!section.get("router")) refuse_policy(section, "experts need a \"router\"");
  Router router;
  const ParamRequest weight{.role = Role::RouterWeight, .path = path, .shape = {experts, context.sizes.hidden}};
  if (auto made = linear(context, section.get("router"), nullptr, scope, weight, Role::RouterBias))
    router.linear = std::move(*made);
  if (const std::optional<Binding> row = binder_.binding(section.get("choice_bias"), scope.variables)) {
    const ParamRequest request{.role = Role::RouterBias, .path = path + ".choice_bias", .shape = {experts}};
    if (row->names()) router.choice_bias = binder_.bind(request, binder_.names(*row->names(), scope, ""), *row, scope);
  }
  router.norm = norm(context, &section, scope, path + ".norm", context.sizes.hidden, "router_norm");
  if (const Node* scale = section.get("router_scale_input"))
    router.scale_input = evaluate_number(*scale, scope.variables);
  if (const std::optional<Binding> row = binder_.binding(section.get("expert_factors"), scope.variables);
      row && row->names()) {
    const ParamRequest request{.role = Role::RouterBias, .path = path + ".expert_factors", .shape = {experts}};
    router.expert_factors = binder_.bind(request, binder_.names(*row->names(), scope, ""), *row, scope);
  }
  if (const Node* scores = section.get("scores")) router.scores = parse_enum<RouterScores>(*scores, scope.variables);
  if (const Node* normalise = section.get("normalise")) router.normalise = evaluate_bool(*normalise, scope.variables);
  if (const Node* factor = section.get("factor")) router.factor = evaluate_number(*factor, scope.variables);
  if (const Node* jitter = section.get("jitter")) router.jitter = evaluate_number(*jitter, scope.variables);
  router.groups = count_of(section, "groups", scope, experts, 1);
  router.groups_kept = count_of(section, "groups_kept", scope, router.groups, router.groups);
  if (const Node* score = section.get("group_score"))
    router.group_score = parse_enum<GroupScore>(*score, scope.variables);
  if (experts % router.groups != 0)
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives " + std::to_string(experts) +
                                             " experts in " + std::to_string(router.groups) + " groups of equal size");
  router.per_token = count_of(section, "per_token", scope, experts / router.groups * router.groups_kept, 1);
  if (router.scores == RouterScores::SparseMixer) {
    if (router.groups > 1 || router.choice_bias || router.normalise || router.factor != 1)
      refuse_policy(section, "\"scores: sparsemixer\" has neither groups, choice_bias, normalise nor factor");
    if (router.per_token != 2)
      throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives \"per_token\" the value " +
                                               std::to_string(router.per_token) + ", sparsemixer chooses 2");
  }
  return router;
}

/// Returns the section of experts as this checkpoint stores them. Where `stacked` is a section, it says so of those
/// that lie in one tensor, which its `down` names; else the experts' own section does. Sets `in_one` where they do.
Node Builder::stored_experts(const Node& section, const Scope& scope, bool& in_one) const {
  const Node* stacked = section.get("stacked");
  in_one = stacked && !stacked->is_map() && evaluate_bool(*stacked, scope.variables);
  if (!stacked || !stacked->is_map()) return section;
  const Node* down = stacked->get("down");
  if (!down) refuse_policy(*stacked, "stacked experts need \"down\"");
  Scope inside = scope;
  if (const Node* at = stacked->get("at")) binder_.enter(*at, inside);
  in_one = binder_.has(*Binding{down}.names(), inside, ".weight");
  if (!in_one) return section;
  Node own = section;
  std::erase_if(own.entries, [](const auto& entry) {
    constexpr std::array<std::string_view, 5> replaced{"at", "up", "gate", "gate_up", "down"};
    return std::find(replaced.begin(), replaced.end(), entry.first.text) != replaced.end();
  });
  return merged(own, *stacked);
}

std::optional<Experts> Builder::experts(const Context& context, const Node& mlp, const Scope& scope,
                                        const std::string& path, Activation activation) {
  const Node* spelled = mlp.get("experts");
  if (!spelled || !binder_.binding(spelled, scope.variables)) return std::nullopt;
  bool in_one = false;
  const Node stored = stored_experts(*spelled, scope, in_one), *section = &stored;
  const int64_t count = count_of(*section, "count", scope, max_experts, 0),
                tensors = static_cast<int64_t>(view_.checkpoint.tensors().size());
  experts_ += in_one ? 1 : count;
  if (experts_ > tensors)  // else a small file could ask for very many names
    throw Error(Reason::ModelUnreadable, section->where() + ": config.json gives " + std::to_string(experts_) +
                                             " experts up to layer " + std::to_string(scope.layer) +
                                             ", and the checkpoint has " + std::to_string(tensors) + " tensors");
  if (in_one && count > most_stacked_experts / context.sizes.layers)
    throw Error(Reason::ModelUnreadable, section->where() + ": config.json gives " + std::to_string(count) +
                                             " experts in each of " + std::to_string(context.sizes.layers) +
                                             " layers, expected at most " + std::to_string(most_stacked_experts) +
                                             " in all");
  Experts made{.router = router(context, *section, scope, path + ".router", count),
               .experts = {},
               .weigh_input = false,
               .shared = {},
               .shared_gate = {}};
  if (const Node* input = section->get("weigh_input")) made.weigh_input = evaluate_bool(*input, scope.variables);
  const RoutedShare share{count, made.router.per_token};
  for (int64_t number = 0; number < count; ++number) {
    Scope own = scope;
    own.variables.expert = number;
    if (in_one) own.member = number, own.members = count;
    if (const Node* at = section->get("at")) binder_.enter(*at, own);
    GatedMlp& expert = made.experts.emplace_back(
        gated_block(context, *section, own, path + ".experts." + std::to_string(number), activation));
    for (Linear* linear : {&expert.gate, &expert.up, &expert.down}) set_share(*linear, share);
    // What the tensors of all do not fit for one, they fit for none: one problem says it.
    if (in_one && !(expert.gate.weight.tensor && expert.up.weight.tensor && expert.down.weight.tensor)) break;
  }
  const Node* shared = mlp.get("shared");
  if (!shared || !binder_.binding(shared, scope.variables)) return made;
  Scope own = scope;
  if (const Node* at = shared->get("at")) binder_.enter(*at, own);
  made.shared = gated_block(context, *shared, own, path + ".shared", activation);
  const ParamRequest gate{
      .role = Role::RouterWeight, .path = path + ".shared_gate", .shape = {1, context.sizes.hidden}};
  if (const Node* factor = shared->get("factor")) made.shared_factor = evaluate_number(*factor, own.variables);
  made.shared_gate = linear(context, shared->get("gated_by"), shared, own, gate, Role::RouterBias);
  return made;
}

}  // namespace pm::policy
