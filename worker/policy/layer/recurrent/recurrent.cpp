// SPDX-License-Identifier: Apache-2.0
// Builder: blocks that keep a state of each sequence in place of keys and values.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

/// Returns the section of the block that the layer has in place of attention, or nullptr where it attends.
const Node* Builder::recurrent_section(const Context& context, int64_t number) const {
  Variables variables = context.scope.variables;
  variables.layer = number;
  const Node* found = nullptr;
  for (const char* name : {"delta_net", "short_convolution", "state_space"}) {
    const Node* section = context.section->get(name);
    if (!section || !binder_.binding(section, variables)) continue;
    if (found) refuse_policy(*section, "a layer has one recurrent block; another one is on for the same layer");
    found = section;
  }
  return found;
}

Recurrent Builder::recurrent(const Context& context, const Node& section, int64_t number, const std::string& path) {
  const Scope scope = block_scope(context, section, number);
  if (&section == context.section->get("delta_net")) return {delta_net(context, section, scope, path + ".delta_net")};
  if (&section == context.section->get("state_space"))
    return {state_space(context, section, scope, path + ".state_space")};
  return {short_convolution(context, section, scope, path + ".short_convolution")};
}

void Builder::expect_multiple(const Node& section, int64_t count, const char* of, int64_t groups, const char* what) {
  if (count % groups != 0)
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives " + std::to_string(count) + " " + of +
                                             " and " + std::to_string(groups) + " " + what + "; expected a multiple");
}

const Node& Builder::needed_row(const Node& section, const char* block, const char* key) {
  if (!section.get(key)) refuse_policy(section, std::string(block) + " needs \"" + key + "\"");
  return *section.get(key);
}

/// Binds the parts of a tensor whose rows are partitioned by units. By unit: the rows of all parts of a unit lie
/// together; else all rows of a part lie together.
void Builder::unit_parts(const Context& context, const Node& row, const Scope& scope, const std::string& path,
                         const std::vector<UnitPart>& parts, std::vector<int64_t> inputs, int64_t units, bool by_unit) {
  const auto rows_of = [&](const UnitPart& part) { return part.shared ? part.rows : units * part.rows; };
  int64_t stored = 0, before = 0, of_unit = 0;
  for (const UnitPart& part : parts) {
    stored += rows_of(part);
    of_unit += part.rows;
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const UnitPart& part = parts[i];
    std::vector<int64_t> shape{rows_of(part)};
    shape.insert(shape.end(), inputs.begin(), inputs.end());
    const ParamRequest request{.role = part.role,
                               .path = path + part.name,
                               .shape = std::move(shape),
                               .units = part.shared ? 1 : units,
                               .fused = parts.size() > 1 ? Fused::Strided : Fused::None,
                               .part = static_cast<int>(i),
                               .parts = static_cast<int>(parts.size()),
                               .stored_rows = stored,
                               .offset = before,
                               .stride = by_unit ? of_unit : part.rows};
    const Role bias = part.shared ? Role::RecurrentSharedVector : Role::RecurrentVector;
    if (auto made = linear(context, &row, nullptr, scope, request, bias)) *part.linear = *made;
    before += by_unit ? part.rows : rows_of(part);
  }
}

/// Binds numbers of which each unit has equally many.
void Builder::unit_vector(const Node& row, const Scope& scope, const std::string& path, int64_t units, int64_t count,
                          Param& target) {
  const std::optional<Binding> binding = binder_.binding(&row, scope.variables);
  if (!binding || !binding->names()) return;
  const ParamRequest request{.role = Role::RecurrentVector, .path = path, .shape = {count}, .units = units};
  target = binder_.bind(request, binder_.names(*binding->names(), scope, ""), *binding, scope).value_or(Param{});
}

Linear Builder::recurrent_out(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                              int64_t columns, int64_t units) {
  const ParamRequest request{
      .role = Role::RecurrentOut, .path = path + ".out", .shape = {context.sizes.hidden, columns}, .units = units};
  return linear(context, section.get("out"), &section, scope, request, Role::OutBias).value_or(Linear{});
}

}  // namespace pm::policy
