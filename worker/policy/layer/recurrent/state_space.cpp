// SPDX-License-Identifier: Apache-2.0
// Builder: selective state spaces.
#include "worker/policy/builder.h"

namespace pm::policy {

StateSpace Builder::state_space(const Context& context, const Node& section, const Scope& scope,
                                const std::string& path) {
  const auto row = [&](const char* key) -> const Node& { return needed_row(section, "state_space", key); };
  StateSpace block;
  block.heads = small_size(section, "heads", scope);
  block.head_dim = small_size(section, "head_dim", scope);
  block.groups = small_size(section, "groups", scope);
  block.state_size = small_size(section, "state_size", scope);
  block.taps = small_size(section, "taps", scope);
  expect_multiple(section, block.heads, "heads", block.groups, "groups of state spaces");
  if (const Node* least = section.get("least_step")) block.least_step = evaluate_number(*least, scope.variables);
  if (const Node* most = section.get("most_step")) {
    const nlohmann::json value = evaluate(*most, scope.variables, /*nullable=*/true);
    const bool is_infinite = value.is_object() && value.value("__float__", nlohmann::json()) == "Infinity";
    if (!value.is_null() && !is_infinite) block.most_step = evaluate_number(*most, scope.variables);
  }
  const int64_t units = block.units(), own = block.heads / units, values = own * block.head_dim;
  const bool shared = block.is_shared();
  const Role weight = Role::RecurrentWeight, taps = Role::RecurrentVector,
             shared_weight = shared ? Role::RecurrentShared : weight,
             shared_taps = shared ? Role::RecurrentSharedVector : taps;
  unit_parts(context, row("in"), scope, path,
             {{".output_gate", values, weight, &block.output_gate},
              {".value", values, weight, &block.value},
              {".write", block.state_size, shared_weight, &block.write, shared},
              {".read", block.state_size, shared_weight, &block.read, shared},
              {".step", own, Role::RecurrentGate, &block.step}},
             {context.sizes.hidden}, units, false);
  unit_parts(context, row("convolution"), scope, path,
             {{".value_taps", values, taps, &block.value_taps},
              {".write_taps", block.state_size, shared_taps, &block.write_taps, shared},
              {".read_taps", block.state_size, shared_taps, &block.read_taps, shared}},
             {1, block.taps}, units, false);
  for (const auto& [name, target] :
       {std::pair{"decay", &block.decay}, {"step_bias", &block.step_bias}, {"skip", &block.skip}})
    unit_vector(row(name), scope, path + "." + name, units, block.heads, *target);
  row("out_norm");
  const ParamRequest request{.role = Role::RecurrentVector,
                             .path = path + ".norm.weight",
                             .shape = {block.heads * block.head_dim},
                             .units = units};
  if (auto made = norm(context, &section, scope, request, "out_norm")) block.norm = *made;
  row("out");
  block.out = recurrent_out(context, section, scope, path, block.heads * block.head_dim, units);
  return block;
}

}  // namespace pm::policy
