// SPDX-License-Identifier: Apache-2.0
// Builder: gated delta nets, whose projections lie in several tensors or in two.
#include "worker/base/error.h"
#include "worker/policy/builder.h"

namespace pm::policy {

/// Binds the parts of a tensor whose rows are partitioned by key heads. By head: the rows of all parts of a key head
/// lie together; else all rows of a part lie together.
void Builder::delta_net_parts(const Context& context, const Node& row, const Scope& scope, const std::string& path,
                              const std::vector<DeltaPart>& parts, int64_t heads, bool by_head) {
  int64_t all = 0, before = 0;
  for (const DeltaPart& part : parts) all += part.rows;
  for (size_t i = 0; i < parts.size(); ++i) {
    const DeltaPart& part = parts[i];
    const ParamRequest request{.role = part.role,
                               .path = path + part.name,
                               .shape = {heads * part.rows, context.sizes.hidden},
                               .units = heads,
                               .fused = parts.size() > 1 ? Fused::Strided : Fused::None,
                               .part = static_cast<int>(i),
                               .parts = static_cast<int>(parts.size()),
                               .stored_rows = heads * all,
                               .offset = by_head ? before : heads * before,
                               .stride = by_head ? all : part.rows};
    if (auto made = linear(context, &row, nullptr, scope, request, Role::RecurrentVector)) *part.linear = *made;
    before += part.rows;
  }
}

std::optional<DeltaNet> Builder::delta_net(const Context& context, int64_t number, const std::string& path) {
  const Node* section = context.section->get("delta_net");
  if (!section) return std::nullopt;
  Variables variables = context.scope.variables;
  variables.layer = number;
  if (!binder_.binding(section, variables)) return std::nullopt;
  const Scope scope = block_scope(context, *section, number);
  const auto row = [&](const char* key) -> const Node& {
    if (!section->get(key)) refuse_policy(*section, std::string("delta_net needs \"") + key + "\"");
    return *section->get(key);
  };
  DeltaNet net;
  net.key_heads = small_size(*section, "key_heads", scope);
  net.value_heads = small_size(*section, "value_heads", scope);
  net.key_dim = small_size(*section, "key_dim", scope);
  net.value_dim = small_size(*section, "value_dim", scope);
  net.taps = small_size(*section, "taps", scope);
  if (net.value_heads % net.key_heads != 0)
    throw Error(Reason::ModelUnreadable, section->where() + ": config.json gives " + std::to_string(net.value_heads) +
                                             " value heads and " + std::to_string(net.key_heads) +
                                             " key heads of linear attention; expected a multiple");
  const int64_t ratio = net.values_per_key(), values = ratio * net.value_dim;
  const DeltaPart query{".query", net.key_dim, Role::RecurrentWeight, &net.query},
      key{".key", net.key_dim, Role::RecurrentWeight, &net.key},
      value{".value", values, Role::RecurrentWeight, &net.value},
      gate{".output_gate", values, Role::RecurrentWeight, &net.output_gate},
      beta{".beta", ratio, Role::RecurrentGate, &net.beta}, step{".step", ratio, Role::RecurrentGate, &net.step};
  const auto bind = [&](const char* name, const std::vector<DeltaPart>& parts, bool by_head) {
    delta_net_parts(context, row(name), scope, path, parts, net.key_heads, by_head);
  };
  if (section->get("qkvz")) {
    bind("qkvz", {query, key, value, gate}, true);
    bind("ba", {beta, step}, true);
  } else {
    bind("qkv", {query, key, value}, false);
    bind("z", {gate}, false);
    bind("b", {beta}, false);
    bind("a", {step}, false);
  }
  const auto vector = [&](const char* name, std::string_view suffix, ParamRequest request, Param& target) {
    const std::optional<Binding> binding = binder_.binding(&row(name), scope.variables);
    if (!binding || !binding->names()) return;
    request.role = Role::RecurrentVector;
    request.units = net.key_heads;
    target = binder_.bind(std::move(request), binder_.names(*binding->names(), scope, suffix), *binding, scope)
                 .value_or(Param{});
  };
  int64_t before = 0;
  for (const auto& [part, name, target] : {std::tuple{0, ".query_taps", &net.query_taps},
                                           {1, ".key_taps", &net.key_taps},
                                           {2, ".value_taps", &net.value_taps}}) {
    const int64_t rows = part == 2 ? values : net.key_dim;
    vector("convolution", ".weight",
           {.path = path + name,
            .shape = {net.key_heads * rows, 1, net.taps},
            .fused = Fused::Strided,
            .part = part,
            .parts = 3,
            .stored_rows = net.key_heads * net.channels(),
            .offset = before,
            .stride = rows},
           *target);
    before += net.key_heads * rows;
  }
  vector("decay", "", {.path = path + ".decay", .shape = {net.value_heads}}, net.decay);
  vector("step_bias", "", {.path = path + ".step_bias", .shape = {net.value_heads}}, net.step_bias);
  if (auto made = norm(context, section, scope, path + ".norm", net.value_dim, "out_norm")) net.norm = *made;
  const ParamRequest out{.role = Role::RecurrentOut,
                         .path = path + ".out",
                         .shape = {context.sizes.hidden, net.value_heads * net.value_dim},
                         .units = net.key_heads};
  if (auto made = linear(context, &row("out"), section, scope, out, Role::OutBias)) net.out = *made;
  return net;
}

}  // namespace pm::policy
