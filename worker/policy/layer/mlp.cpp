// SPDX-License-Identifier: Apache-2.0
// Builder: feed-forward blocks.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// The maximum number of feed-forward blocks between attention and the last one.
constexpr int64_t most_stacked = 64;

}  // namespace

/// Builds gate and up projections that lie in one tensor, in the order that the key says.
void Builder::gate_and_up(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                          GatedMlp& mlp) {
  const Role weights[] = {Role::GateWeight, Role::UpWeight}, biases[] = {Role::GateBias, Role::UpBias};
  const char* names[] = {".gate", ".up"};
  Linear* targets[] = {&mlp.gate, &mlp.up};
  const bool gate_first = section.get("gate_up") != nullptr;
  const Node* row = section.get(gate_first ? "gate_up" : "up_gate");
  const Node* fused = row->get("fused");
  const bool in_turn = fused && parse_keyword(*fused, scope.variables, gate_up_words) == "interleaved";
  for (int i = 0; i < 2; ++i) {
    const ParamRequest request{.role = weights[i],
                               .path = path + names[i],
                               .shape = {mlp.width, context.sizes.hidden},
                               .units = mlp.width,
                               .fused = in_turn ? Fused::Interleaved : Fused::Concat,
                               .part = gate_first ? i : 1 - i,
                               .parts = 2,
                               .stored_rows = 2 * mlp.width};
    if (auto made = linear(context, row, &section, scope, request, biases[i])) *targets[i] = std::move(*made);
  }
}

GatedMlp Builder::feed_forward(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                               Activation activation, int64_t width, bool& has_gate) {
  const int64_t hidden = context.sizes.hidden;
  if (width <= 0)
    throw Error(Reason::ModelUnreadable,
                section.where() + ": config.json gives an MLP of " + std::to_string(width) + " columns");
  const bool both = section.get("gate_up") || section.get("up_gate");
  if ((!both && !section.get("up")) || !section.get("down"))
    refuse_policy(section, "an MLP needs \"up\" (or \"gate_up\", or \"up_gate\") and \"down\"");
  const auto made = [&](const char* key, Role role, Role bias_role, std::vector<int64_t> shape) {
    const ParamRequest request{.role = role, .path = path + "." + key, .shape = std::move(shape), .units = width};
    return projection(context, section.get(key), section, scope, request, bias_role);
  };
  GatedMlp block{.activation = activation, .width = width, .gate = {}, .up = {}, .down = {}};
  has_gate = both;
  if (both) {
    gate_and_up(context, section, scope, path, block);
  } else {
    block.up = made("up", Role::UpWeight, Role::UpBias, {width, hidden}).value_or(Linear{});
    std::optional<Linear> gate = made("gate", Role::GateWeight, Role::GateBias, {width, hidden});
    has_gate = gate.has_value();
    if (gate) block.gate = std::move(*gate);
  }
  block.down = made("down", Role::DownWeight, Role::DownBias, {hidden, width}).value_or(Linear{});
  return block;
}

void Builder::set_limits(const Node& section, const Scope& scope, GatedMlp& block) {
  if (const Node* limit = section.get("limit")) block.limit = evaluate_number(*limit, scope.variables);
  if (!block.has_gate && (section.get("limit") || section.get("up_offset")))
    refuse_policy(section, "\"limit\" and \"up_offset\" are of a block with a gate");
  if (block.limit < 0)
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives \"limit\" the value " +
                                             std::to_string(block.limit) + ", expected 0 (none) or more");
  if (const Node* offset = section.get("up_offset")) block.up_offset = evaluate_number(*offset, scope.variables);
}

/// Builds the numbers of an activation that has some. Returns nothing where it has none.
std::optional<Xielu> Builder::xielu(const Node& mlp, const Scope& scope, const std::string& path) {
  const Node* section = mlp.get("xielu");
  if (!section) return std::nullopt;
  if (const Node* when = section->get("when"); when && !evaluate_bool(*when, scope.variables)) return std::nullopt;
  Xielu xielu;
  for (auto [key, number] : {std::pair{"positive", &xielu.positive},
                             {"negative", &xielu.negative},
                             {"beta", &xielu.beta},
                             {"eps", &xielu.eps}}) {
    const std::optional<Binding> row = binder_.binding(section->get(key), scope.variables);
    if (!row || !row->names()) refuse_policy(*section, std::string("xielu needs \"") + key + "\"");
    const ParamRequest request{.role = Role::Scalar, .path = path + ".xielu." + key, .shape = {}};
    if (auto bound = binder_.bind(request, binder_.names(*row->names(), scope, ""), *row, scope))
      *number = std::move(*bound);
  }
  return xielu;
}

Mlp Builder::mlp(const Context& context, const Node& section, const Scope& scope, const std::string& path) {
  std::optional<Xielu> own = xielu(section, scope, path);
  const Activation act = own ? Activation::Relu : activation(section.get("act"), scope.variables);
  Mlp mlp;
  mlp.norm = norm(context, &section, scope, path + ".norm", context.sizes.hidden);
  mlp.post_norm = norm(context, &section, scope, path + ".post_norm", context.sizes.hidden, "post_norm");
  if (std::optional<Experts> routed = experts(context, section, scope, path, act)) {
    if (own) refuse_policy(section, "\"xielu\" is of a block without experts");
    for (GatedMlp& expert : routed->experts) set_limits(section, scope, expert);
    if (routed->shared) set_limits(section, scope, *routed->shared);
    mlp.kind = std::move(*routed);
    return mlp;
  }
  bool has_gate = false;
  const Node* width = section.get("width");
  GatedMlp block = feed_forward(context, section, scope, path, act,
                                width ? evaluate_int(*width, scope.variables) : context.sizes.ffn, has_gate);
  mlp.quantized = quantized_mlp(section, scope, path + ".quantized");
  if (has_gate && own) refuse_policy(section, "\"xielu\" is of a block without a gate");
  block.has_gate = has_gate;
  set_limits(section, scope, block);
  if (has_gate)
    mlp.kind = std::move(block);
  else
    mlp.kind = DenseMlp{.activation = act,
                        .xielu = std::move(own),
                        .width = block.width,
                        .up = std::move(block.up),
                        .down = std::move(block.down)};
  return mlp;
}

/// Builds the block that reads the same residual as the layer's last one, where there is one.
std::optional<BesideMlp> Builder::beside_mlp(const Context& context, int64_t number, const std::string& path) {
  const Node* section = context.section->get("beside_mlp");
  if (!section) return std::nullopt;
  const Scope scope = block_scope(context, *section, number);
  if (const Node* when = section->get("when"); when && !evaluate_bool(*when, scope.variables)) return std::nullopt;
  BesideMlp beside{.mlp = mlp(context, *section, scope, path), .first_norm = {}};
  beside.first_norm = norm(context, section, scope, path + ".first_norm", context.sizes.hidden, "first_norm");
  return beside;
}

/// Builds the blocks between attention and the layer's last one. In their names `l` is the number of the block.
std::vector<Mlp> Builder::stacked_mlp(const Context& context, int64_t number, const std::string& path) {
  std::vector<Mlp> all;
  const Node* section = context.section->get("stacked_mlp");
  if (!section) return all;
  Scope layer = context.scope;
  layer.layer = static_cast<int>(number);
  layer.variables.layer = number;
  const int64_t count = small_size(*section, "count", layer, /*may_be_zero=*/true);
  if (count > most_stacked)
    throw Error(Reason::ModelUnreadable, section->where() + ": config.json gives " + std::to_string(count) +
                                             " stacked feed-forward blocks, expected 0 to " +
                                             std::to_string(most_stacked));
  if (const Node* at = context.layer ? context.layer->get("at") : nullptr) binder_.enter(*at, layer);
  for (int64_t block = 0; block < count; ++block) {
    Scope scope = layer;
    scope.variables.layer = block;
    if (const Node* at = section->get("at")) binder_.enter(*at, scope);
    all.push_back(mlp(context, *section, scope, path + ".stacked." + std::to_string(block)));
  }
  return all;
}

}  // namespace pm::policy
