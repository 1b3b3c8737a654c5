// SPDX-License-Identifier: Apache-2.0
// Builder: layers, and the cross-attention that a class may lack.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

/// Builds the cross-attention of a layer, if the class has what it reads.
std::optional<Attention> Builder::cross_attention(const Context& context, int64_t number, const std::string& path) {
  const Node* section = context.section->get("cross");
  Variables variables = context.scope.variables;
  variables.layer = number;
  if (!binder_.binding(section, variables)) return std::nullopt;
  const auto build = [&] {
    return attention(context, *section, block_scope(context, *section, number), path + ".cross", true);
  };
  const Node* source = section->get("source");
  const bool absent = source && policy_.get("stacks")->get(source->text) && !contexts_.contains(source->text);
  if (outer_ || binder_.is_dry_run() || (source && !absent)) return build();
  if (!absent) {
    throw Error(Reason::UnknownArchitecture,
                model_.architecture + " with cross-attention is served as the decoder of an encoder-decoder only (" +
                    section->where() + ")");
  }
  // the class has no such stack, so that the weights of the block are known and not loaded (BartForCausalLM)
  binder_.set_dry_run(true);
  build();
  binder_.set_dry_run(false);
  return std::nullopt;
}

/// Returns what a layer that does not attend has in place of an attention: the sizes of the attentions of other layers,
/// and the norms around its recurrent block, whose section this is; nullptr: it has none.
Attention Builder::absent_attention(const Context& context, const Node* section, int64_t number,
                                    const std::string& path) {
  const Node& attn = *context.section->get("attn");
  Attention absent;
  head_sizes(context, attn, block_scope(context, attn, number), absent);
  if (!section) return absent;
  const Scope scope = block_scope(context, *section, number);
  absent.norm = norm(context, section, scope, path + ".norm", context.sizes.hidden);
  absent.post_norm = norm(context, section, scope, path + ".post_norm", context.sizes.hidden, "post_norm");
  return absent;
}

Layer Builder::layer(const Context& context, int64_t number, const std::string& path) {
  const Node& section = *context.section;
  const auto option = [&](std::string_view key) { return context.layer ? context.layer->get(key) : nullptr; };
  Layer layer;
  Scope scope = context.scope;
  scope.variables.layer = number;
  if (const Node* order = option("order")) {
    const std::string word = parse_keyword(*order, scope.variables, order_words);
    layer.order = word == "pre"        ? Order::Pre
                  : word == "post"     ? Order::Post
                  : word == "parallel" ? Order::Parallel
                                       : Order::Reversible;
  }
  const Node *attn = section.get("attn"), *ffn = section.get("mlp");
  if (!attn || !ffn) refuse_policy(section, "a stack needs \"attn\" and \"mlp\"");
  layer.bottleneck = bottleneck(context, number, path + ".bottleneck");
  const Context inner = layer.bottleneck ? inside(context, *layer.bottleneck) : context;
  if (const Node* recurrence = recurrent_section(inner, number)) {
    layer.recurrent = recurrent(inner, *recurrence, number, path);
    layer.attention = absent_attention(inner, recurrence, number, path + ".attn");
  } else if (!binder_.binding(attn, scope.variables)) {
    layer.has_mixer = false;
    layer.attention = absent_attention(inner, nullptr, number, path + ".attn");
  } else {
    layer.attention = attention(inner, *attn, block_scope(inner, *attn, number), path + ".attn", false);
  }
  layer.attention.values_apart = layer.bottleneck && layer.bottleneck->attention;
  if (const Node* normed = option("residual_normed")) layer.residual_normed = evaluate_bool(*normed, scope.variables);
  if (const Node* factor = option("residual_multiplier"))
    layer.residual_multiplier = evaluate_number(*factor, scope.variables);
  layer.cross = cross_attention(context, number, path);
  layer.stacked = stacked_mlp(inner, number, path);
  layer.has_mlp = binder_.binding(ffn, scope.variables).has_value();
  if (layer.has_mlp) layer.mlp = mlp(inner, *ffn, block_scope(inner, *ffn, number), path + ".mlp");
  if (!layer.has_mixer && !layer.has_mlp)
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives layer " + std::to_string(number) +
                                             " neither attention nor an MLP; expected one of them at least");
  layer.beside = beside_mlp(inner, number, path + ".beside");
  Scope own = scope;
  if (const Node* at = option("at")) binder_.enter(*at, own);
  own.layer = static_cast<int>(number);
  layer.input = layer_input(context, own, path + ".input");
  if (const std::optional<Binding> row = binder_.binding(option("layer_scalar"), own.variables); row && row->names())
    layer.factor = binder_.bind({.role = Role::Scalar, .path = path + ".factor", .shape = {}},
                                binder_.names(*row->names(), own, ""), *row, own);
  layer.co_attention = co_attention(context, number, path + ".co_attention");
  layer.branch = convolution_branch(context, scope, path + ".branch");
  layer.pooling = pooling(context, scope);
  layer.upsampling = upsampling(context, number, scope);
  if (const Node* repeated = option("repeats_state")) layer.repeats_state = evaluate_bool(*repeated, scope.variables);
  return layer;
}

}  // namespace pm::policy
