// SPDX-License-Identifier: Apache-2.0
// Builder: what each layer reads of the tokens beside its states.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

std::optional<LayerInputs> Builder::layer_inputs(const Context& context, const Node& input, const Scope& scope,
                                                 const std::string& path) {
  const Node* section = input.get("per_layer_inputs");
  if (!section || !binder_.binding(section, scope.variables)) return std::nullopt;
  const Node *width = section->get("width"), *table = section->get("table");
  if (!width || !table || !section->get("projection"))
    refuse_policy(*section, "per_layer_inputs need \"width\", \"table\" and \"projection\"");
  LayerInputs made;
  made.width = small_size(*section, "width", scope);
  const int64_t columns = context.sizes.layers * made.width;
  const Node* count = section->get("rows");
  const int64_t rows = count ? evaluate_int(*count, scope.variables) : context.sizes.vocab;
  if (rows < context.sizes.vocab || rows > int64_t{1} << 30)
    throw Error(Reason::ModelUnreadable, section->where() + ": config.json gives " + std::to_string(rows) +
                                             " rows of per-layer inputs, expected one for each of the " +
                                             std::to_string(context.sizes.vocab) + " tokens of the vocabulary");
  const auto number = [&](const char* key, double& target) {
    if (const Node* node = section->get(key)) target = evaluate_number(*node, scope.variables);
  };
  number("scale", made.scale);
  number("projection_scale", made.projection_scale);
  number("factor", made.factor);
  if (const std::optional<Binding> row = binder_.binding(table, scope.variables); row && row->names()) {
    const ParamRequest request{
        .role = Role::TokenEmbedding, .path = path + ".table", .shape = {rows, columns}, .units = rows};
    if (auto bound = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope))
      made.table = *std::move(bound);
  }
  const ParamRequest projection{
      .role = Role::EmbeddingProjection, .path = path + ".projection", .shape = {columns, context.sizes.hidden}};
  if (auto linear = this->linear(context, section->get("projection"), nullptr, scope, projection, Role::HeadDenseBias))
    made.projection = *std::move(linear);
  made.norm = norm(context, section, scope, path + ".norm", made.width);
  return made;
}

std::optional<LayerInput> Builder::layer_input(const Context& context, const Scope& scope, const std::string& path) {
  const Node* section = context.layer ? context.layer->get("per_layer_input") : nullptr;
  if (!section || !binder_.binding(section, scope.variables)) return std::nullopt;
  const Node *input = context.section->get("input"), *all = input ? input->get("per_layer_inputs") : nullptr;
  if (!all) refuse_policy(*section, "\"per_layer_input\" reads \"per_layer_inputs\" of the input, which it lacks");
  if (!section->get("gate") || !section->get("projection"))
    refuse_policy(*section, "per_layer_input needs \"gate\" and \"projection\"");
  const int64_t width = small_size(*all, "width", scope), hidden = context.sizes.hidden;
  LayerInput made;
  made.activation = activation(section->get("act"), scope.variables);
  const ParamRequest gate{.role = Role::EmbeddingProjection, .path = path + ".gate", .shape = {width, hidden}},
      projection{.role = Role::EmbeddingProjection, .path = path + ".projection", .shape = {hidden, width}};
  if (auto linear = this->linear(context, section->get("gate"), nullptr, scope, gate, Role::HeadDenseBias))
    made.gate = *std::move(linear);
  if (auto linear = this->linear(context, section->get("projection"), nullptr, scope, projection, Role::HeadDenseBias))
    made.projection = *std::move(linear);
  made.norm = norm(context, section, scope, path + ".norm", hidden);
  return made;
}

}  // namespace pm::policy
