// SPDX-License-Identifier: Apache-2.0
// Builder: gated delta nets, whose projections lie in several tensors or in two.
#include "worker/policy/builder.h"

namespace pm::policy {

DeltaNet Builder::delta_net(const Context& context, const Node& section, const Scope& scope, const std::string& path) {
  const auto row = [&](const char* key) -> const Node& { return needed_row(section, "delta_net", key); };
  DeltaNet net;
  net.key_heads = small_size(section, "key_heads", scope);
  net.value_heads = small_size(section, "value_heads", scope);
  net.key_dim = small_size(section, "key_dim", scope);
  net.value_dim = small_size(section, "value_dim", scope);
  net.taps = small_size(section, "taps", scope);
  expect_multiple(section, net.value_heads, "value heads", net.key_heads, "key heads of linear attention");
  const int64_t ratio = net.values_per_key(), values = ratio * net.value_dim;
  const UnitPart query{".query", net.key_dim, Role::RecurrentWeight, &net.query},
      key{".key", net.key_dim, Role::RecurrentWeight, &net.key},
      value{".value", values, Role::RecurrentWeight, &net.value},
      gate{".output_gate", values, Role::RecurrentWeight, &net.output_gate},
      beta{".beta", ratio, Role::RecurrentGate, &net.beta}, step{".step", ratio, Role::RecurrentGate, &net.step};
  const auto bind = [&](const char* name, const std::vector<UnitPart>& parts, bool by_head) {
    unit_parts(context, row(name), scope, path, parts, {context.sizes.hidden}, net.key_heads, by_head);
  };
  if (section.get("qkvz")) {
    bind("qkvz", {query, key, value, gate}, true);
    bind("ba", {beta, step}, true);
  } else {
    bind("qkv", {query, key, value}, false);
    bind("z", {gate}, false);
    bind("b", {beta}, false);
    bind("a", {step}, false);
  }
  Linear query_taps, key_taps, value_taps;
  unit_parts(context, row("convolution"), scope, path,
             {{".query_taps", net.key_dim, Role::RecurrentVector, &query_taps},
              {".key_taps", net.key_dim, Role::RecurrentVector, &key_taps},
              {".value_taps", values, Role::RecurrentVector, &value_taps}},
             {1, net.taps}, net.key_heads, false);
  net.query_taps = query_taps.weight;
  net.key_taps = key_taps.weight;
  net.value_taps = value_taps.weight;
  unit_vector(row("decay"), scope, path + ".decay", net.key_heads, net.value_heads, net.decay);
  unit_vector(row("step_bias"), scope, path + ".step_bias", net.key_heads, net.value_heads, net.step_bias);
  if (auto made = norm(context, &section, scope, path + ".norm", net.value_dim, "out_norm")) net.norm = *made;
  row("out");
  net.out = recurrent_out(context, section, scope, path, net.value_heads * net.value_dim, net.key_heads);
  return net;
}

}  // namespace pm::policy
