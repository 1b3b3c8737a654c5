// SPDX-License-Identifier: Apache-2.0
// Builder: the module of a checkpoint that predicts the token behind the next one (multi-token prediction).
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

/// Returns where the names of the module's tensors begin, as a scope; nothing where the stack has no module.
std::optional<Scope> Builder::mtp_scope(const Context& context) const {
  const Node* section = context.section->get("mtp");
  if (!section) return std::nullopt;
  const Node* at = section->get("at");
  if (!at) refuse_policy(*section, "mtp needs \"at\"");
  Scope scope = context.scope;
  binder_.enter(*at, scope);
  return scope;
}

JoinedStates Builder::joined_states(const Context& context, const Node& section, const Scope& scope,
                                    const std::string& path) {
  const int64_t hidden = context.sizes.hidden;
  if (context.sizes.embedding != hidden)
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives embeddings of " +
                                             std::to_string(context.sizes.embedding) + " numbers and states of " +
                                             std::to_string(hidden) + "; expected the same beside an mtp module");
  JoinedStates joined;
  for (const auto& [key, target] : {std::pair{"token_norm", &joined.token_norm}, {"state_norm", &joined.state_norm}}) {
    std::optional<Norm> made = norm(context, &section, scope, path + key, hidden, key);
    if (!made) refuse_policy(section, "mtp needs \"" + std::string(key) + "\"");
    *target = *std::move(made);
  }
  const ParamRequest request{
      .role = Role::EmbeddingProjection, .path = path + "projection", .shape = {hidden, 2 * hidden}};
  if (auto made = linear(context, section.get("projection"), nullptr, scope, request, Role::HeadDenseBias, true))
    joined.projection = *std::move(made);
  return joined;
}

Stack Builder::mtp_module(const std::string& name, const Node& section) {
  const Context context = this->context(name, section);
  contexts_[name] = context;
  const std::optional<Scope> scope = mtp_scope(context);
  const Node *input = section.get("input"), *module = section.get("mtp");
  if (!scope || !input)
    throw Error(Reason::ModelUnreadable, "the policy " + (policy_.file ? *policy_.file : "") + " of " +
                                             model_.architecture + " describes no module for multi-token prediction");
  const std::optional<Binding> projection = binder_.binding(module->get("projection"), scope->variables);
  const Node* spelled = projection ? projection->names() : nullptr;
  if (!spelled) refuse_policy(*module, "mtp needs \"projection\"");
  if (!binder_.has(*spelled, *scope, ".weight"))
    throw Error(Reason::ModelUnreadable, view_.checkpoint.folder().string() + " has no tensor " +
                                             binder_.names(*spelled, *scope, ".weight").front() +
                                             ": its module for multi-token prediction was left out");
  binder_.read_part(scope->prefix + scope->at, module->get("ignore"));
  const std::string path = name + ".";
  Stack stack{.name = name,
              .hidden = context.sizes.hidden,
              .vocab = context.sizes.vocab,
              .positions = context.sizes.positions,
              .input = this->input(context, *input, path),
              .joins = {},
              .memory = {},
              .layers = {},
              .output = {}};
  stack.input.joined_states = joined_states(context, *module, *scope, path + "mtp.");
  // it is numbered as the layer behind the last one, in names of tensors and in the expressions of the policy
  stack.layers.push_back(layer(context, context.sizes.layers, path + "layers.0"));
  set_layouts(section, stack);
  stack.output.norm = norm(context, module, *scope, path + "output.norm", stack.width());
  return stack;
}

}  // namespace pm::policy
