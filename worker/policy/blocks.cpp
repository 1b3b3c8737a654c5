// SPDX-License-Identifier: Apache-2.0
// Builder: attention, linears and norms.
#include <cmath>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"
#include "worker/policy/roles.h"

namespace pm::policy {

namespace {

const Node* first_of(std::initializer_list<const Node*> nodes) {
  for (const Node* node : nodes)
    if (node) return node;
  return nullptr;
}

const Node* option(const Node* section, std::string_view key) { return section ? section->get(key) : nullptr; }

bool holds(const Node* section, const Variables& variables) {
  const Node* when = option(section, "when");
  return section && (!when || evaluate_bool(*when, variables));
}

/// Throws Error{ModelUnreadable} with the value of `what` unless it is `sound`.
void expect(bool sound, const Node& at, const std::string& what, double found, const std::string& expected) {
  if (sound) return;
  nlohmann::json number = found;
  if (found == std::floor(found) && std::abs(found) < 1e15) number = static_cast<int64_t>(found);
  throw Error(Reason::ModelUnreadable,
              at.where() + ": " + what + " is " + number.dump() + " with this config.json, expected " + expected);
}

}  // namespace

std::string parse_keyword(const Node& node, const Variables& variables, const std::vector<std::string_view>& allowed) {
  auto known = [&](const std::string& word) {
    return std::find(allowed.begin(), allowed.end(), word) != allowed.end();
  };
  if (known(node.text)) return node.text;
  const std::string word = evaluate_text(node, variables);
  if (known(word)) return word;
  std::string list;
  for (std::string_view one : allowed) list += (list.empty() ? "" : ", ") + std::string(one);
  throw Error(Reason::ModelUnreadable, "\"" + node.text + "\" (" + node.where() + ") is \"" + word +
                                           "\" with this config.json; served are " + list);
}

const Node* Builder::given(const Node* node, const Variables& variables) {
  if (!node || parse<Pool>(node->text) || parse<Activation>(node->text)) return node;
  return evaluate(*node, variables, /*nullable=*/true).is_null() ? nullptr : node;
}

Activation Builder::activation(const Node* node, const Variables& variables) {
  Node act;
  if (!node) {
    act.file = policy_.file;
    act.line = policy_.line;
    act.kind = Node::Kind::Scalar;
    act.text = "act";
    node = &act;
  }
  if (const auto activation = parse<Activation>(node->text)) return *activation;
  if (const auto activation = parse_config_activation(evaluate_text(*node, variables))) return *activation;
  return parse_enum<Activation>(*node, variables);
}

Scope Builder::block_scope(const Context& context, const Node& section, int64_t layer) const {
  Scope scope = context.scope;
  scope.layer = static_cast<int>(layer);
  scope.variables.layer = layer;
  if (const Node* at = option(context.layer, "at")) binder_.enter(*at, scope);
  if (const Node* at = section.get("at")) binder_.enter(*at, scope);
  return scope;
}

std::optional<Param> Builder::bias(const Binding& row, const Node* block, const Context& context, const Scope& scope,
                                   ParamRequest request, bool outside) {
  const Node* spelled = row.option("bias");
  std::vector<std::string> names;
  request.units = std::max<int64_t>(request.units, 1);
  if (spelled && spelled->is_map()) {
    const std::optional<Binding> own = binder_.binding(spelled, scope.variables);
    if (!own) return std::nullopt;
    request.first_match = true;
    return binder_.bind(std::move(request), binder_.names(*own->names(), scope, ""), *own, scope);
  }
  if (spelled && (spelled->is_list() || spelled->text.starts_with('='))) {
    names = binder_.names(*spelled, scope, "");
    request.first_match = true;
  } else {
    const Node* wanted = first_of({spelled, option(block, "bias"), outside ? nullptr : option(context.layer, "bias")});
    if (wanted ? !evaluate_bool(*wanted, scope.variables) : !outside) return std::nullopt;
    const Node* from = row.names();
    if (!from) refuse_policy(*row.node, "a parameter with a bias needs \"from\"");
    names = binder_.names(*from, scope, ".bias");
  }
  // a tied weight has no bias to share, an optional one takes its bias with it
  Node untied = *row.node;
  std::erase_if(untied.entries, [](const auto& entry) { return entry.first.text == "tie"; });
  return binder_.bind(std::move(request), names, Binding{&untied}, scope);
}

std::optional<Linear> Builder::linear(const Context& context, const Node* node, const Node* block, const Scope& scope,
                                      ParamRequest weight, Role bias_role, bool outside) {
  const std::optional<Binding> row = binder_.binding(node, scope.variables);
  if (!row) return std::nullopt;
  const Node* stored =
      first_of({row->option("layout"), option(block, "layout"), outside ? nullptr : option(context.layer, "layout")});
  const std::vector<std::string_view>& words = scope.variables.expert ? expert_layout_words : layout_words;
  const std::string layout = stored ? parse_keyword(*stored, scope.variables, words) : "linear";
  weight.conv1d = layout == "conv1d";
  weight.by_shape = layout == "by_shape";
  weight.f32_if_f16 = row->option("keep_in_fp32") != nullptr;
  const std::vector<std::string> names =
      row->names() ? binder_.names(*row->names(), scope, ".weight") : std::vector<std::string>{};
  ParamRequest second = weight;
  second.role = bias_role;
  second.conv1d = second.by_shape = false;
  second.path += ".bias";
  weight.path += ".weight";
  std::optional<Param> bound = binder_.bind(weight, names, *row, scope);
  // an optional linear that the checkpoint lacks is absent; a required one is already recorded as missing
  const Node* optional = row->option("optional");
  if (!bound && optional && evaluate_bool(*optional, scope.variables)) {
    bias(*row, block, context, scope, second, outside);
    return std::nullopt;
  }
  const bool by_inputs = sharding_rule(weight.role).dim == 1;
  second.diagonal_blocks = 1;
  second.shape = {(bound ? bound->shape[0] : weight.shape[0]) * (by_inputs ? weight.diagonal_blocks : 1)};
  if (weight.shape.size() == 1) second.shape.clear();  // one output: its bias is one number
  if (bound && weight.units < 0) second.units = bound->units;
  if (sharding_rule(bias_role).dim < 0) second.units = 1;
  return Linear{bound.value_or(Param{}), bias(*row, block, context, scope, second, outside)};
}

NormKind norm_kind(std::string_view word) {
  return word == "layer"     ? NormKind::Layer
         : word == "rms"     ? NormKind::Rms
         : word == "layer1p" ? NormKind::Layer1p
         : word == "affine"  ? NormKind::Affine
                             : NormKind::GemmaRms;
}

std::optional<Norm> Builder::norm(const Context& context, const Node* section, const Scope& scope,
                                  const std::string& path, int64_t width, std::string_view key) {
  return norm(context, section, scope, {.role = Role::NormWeight, .path = path + ".weight", .shape = {width}}, key);
}

std::optional<Norm> Builder::norm(const Context& context, const Node* section, const Scope& scope, ParamRequest request,
                                  std::string_view key) {
  const std::optional<Binding> row = binder_.binding(option(section, key), scope.variables);
  const Node* weighs = row ? row->option("weight") : nullptr;
  const bool has_weight = !weighs || evaluate_bool(*weighs, scope.variables);
  if (weighs && has_weight && !row->names()) refuse_policy(*row->node, "a norm with a weight needs \"from\"");
  if (!row || (has_weight && !row->names())) return std::nullopt;
  Norm norm;
  const Node* kind = first_of({row->option("kind"), option(context.layer, "norm")});
  const std::string word = kind ? parse_keyword(*kind, scope.variables, norm_words) : "layer";
  norm.kind = norm_kind(word);
  const Node* eps =
      first_of({row->option("eps"), scope.variables.lets.empty() ? nullptr : scope.variables.lets[0]->get("eps"),
                option(policy_.get("let"), "eps")});
  if (eps) norm.eps = evaluate_number(*eps, scope.variables);
  if (eps) expect(norm.eps >= 0, *eps, "eps", norm.eps, "no negative number");
  if (!has_weight) return norm;
  norm.weight = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope);
  const Node* biased = row->option("bias");
  const bool named = biased && (biased->is_list() || biased->text.starts_with('='));
  const bool usual = is_layer_norm(norm.kind) || norm.kind == NormKind::Affine;
  if (biased && !named ? evaluate_bool(*biased, scope.variables) : usual || named) {
    request.role = Role::NormBias;
    request.path.replace(request.path.rfind('.'), std::string::npos, ".bias");
    norm.bias = binder_.bind(
        request, named ? binder_.names(*biased, scope, "") : binder_.names(*row->names(), scope, ".bias"), *row, scope);
  }
  return norm;
}

/// Reads how the fused parts lie. `order` gets the stored order of the parts in a block.
void Builder::fuse(const Node& kind, const Scope& scope, const Attention& a, ParamRequest& request,
                   std::vector<std::string>& order) {
  const auto unreadable = [&](const std::string& what) {
    throw Error(Reason::ModelUnreadable, kind.where() + ": " + what);
  };
  const std::string heads = std::to_string(a.heads), kv_heads = std::to_string(a.kv_heads);
  if (!kind.is_map()) {
    const std::string word = parse_keyword(kind, scope.variables, fused_words);
    request.fused = word == "concat" ? Fused::Concat : word == "per_head" ? Fused::PerHead : Fused::Grouped;
    if (request.fused == Fused::PerHead && a.heads != a.kv_heads) {
      unreadable("fused " + word + " needs as many kv heads as heads, config.json gives " + kv_heads + " and " + heads);
    }
    return;
  }
  const Node* blocks = kind.get("blocks");
  if (const Node* given = kind.get("order")) order = texts_of(given);
  std::vector<std::string> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (!blocks || sorted != std::vector<std::string>{"k", "q", "v"})
    refuse_policy(kind, "fused as a section needs \"blocks\" and \"order\", a list of q, k and v");
  request.fused = Fused::Blocks;
  request.blocks = evaluate_int(*blocks, scope.variables);
  if (request.blocks < 1 || a.heads % request.blocks || a.heads != a.kv_heads) {
    unreadable("config.json gives " + heads + " heads and " + kv_heads +
               " kv heads; expected as many of both, a multiple of the " + std::to_string(request.blocks) +
               " blocks in which they lie");
  }
}

void Builder::fused_projections(const Context& context, const Binding& row, const Node& section, const Scope& scope,
                                const std::string& path, Attention& a) {
  const Node* kind = row.option("fused");
  if (!kind) refuse_policy(*row.node, "qkv needs \"fused\": concat, per_head, grouped or a section");
  ParamRequest request{
      .role = Role::QueryWeight, .units = a.heads, .parts = 3, .stored_rows = (a.heads + 2 * a.kv_heads) * a.head_dim};
  std::vector<std::string> order{"q", "k", "v"};
  fuse(*kind, scope, a, request, order);
  request.group = a.heads / a.kv_heads;
  const Role weights[] = {Role::QueryWeight, Role::KeyWeight, Role::ValueWeight},
             biases[] = {Role::QueryBias, Role::KeyBias, Role::ValueBias};
  const char* names[] = {".query", ".key", ".value"};
  Linear* targets[] = {&a.query, &a.key, &a.value};
  for (int part = 0; part < 3; ++part) {
    request.role = weights[part];
    request.path = path + names[part];
    request.part = part;
    request.block_part =
        static_cast<int>(std::find(order.begin(), order.end(), part_words[static_cast<size_t>(part)]) - order.begin());
    request.shape = {(part == 0 ? a.heads : a.kv_heads) * a.head_dim, context.sizes.hidden};
    request.units = part == 0 ? a.heads : request.shape[0];
    request.block = part == 0 ? 1 : a.head_dim;
    if (auto made = linear(context, row.node, &section, scope, request, biases[part]))
      *targets[part] = std::move(*made);
    bias_of_part(row, part, request, biases[part], scope, *targets[part]);
  }
}

/// Builds the projections of keys and values that lie in one tensor, the keys first.
void Builder::fused_keys_and_values(const Context& context, const Node& section, const Scope& scope,
                                    const std::string& path, int64_t width, Attention& a) {
  const Role weights[] = {Role::KeyWeight, Role::ValueWeight}, biases[] = {Role::KeyBias, Role::ValueBias};
  const char* names[] = {".key", ".value"};
  Linear* targets[] = {&a.key, &a.value};
  const int64_t rows = a.kv_heads * a.head_dim;
  for (int part = 0; part < 2; ++part) {
    const ParamRequest request{.role = weights[part],
                               .path = path + names[part],
                               .shape = {rows, width},
                               .units = rows,
                               .block = a.head_dim,
                               .fused = Fused::Concat,
                               .part = part,
                               .parts = 2,
                               .stored_rows = 2 * rows};
    if (auto made = linear(context, section.get("kv"), &section, scope, request, biases[part]))
      *targets[part] = std::move(*made);
  }
}

/// Builds the projection of queries and of the gate of results, which lie in one tensor: for each head its queries,
/// then its gate.
void Builder::gated_queries(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                            Attention& a) {
  const auto part = [&](int number, const char* name) {
    const ParamRequest request{.role = Role::QueryWeight,
                               .path = path + name,
                               .shape = {a.heads * a.head_dim, context.sizes.hidden},
                               .units = a.heads,
                               .fused = Fused::Strided,
                               .part = number,
                               .parts = 2,
                               .stored_rows = 2 * a.heads * a.head_dim,
                               .offset = number * a.head_dim,
                               .stride = 2 * a.head_dim};
    return linear(context, section.get("q_gate"), &section, scope, request, Role::QueryBias);
  };
  if (auto made = part(0, ".query")) a.query = std::move(*made);
  a.output_gate = part(1, ".output_gate");
}

void Builder::projections(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                          int64_t source_width, Attention& a) {
  const int64_t hidden = context.sizes.hidden;
  if (a.value_dim > 0 && (section.get("qkv") || section.get("kv")))
    refuse_policy(section, "values with a width of their own are no part of a fused tensor");
  const bool made_of_latents = latent_projections(context, section, scope, path, a);
  if (const std::optional<Binding> fused = binder_.binding(section.get("qkv"), scope.variables)) {
    if (context.query_width > 0) refuse_policy(section, "queries, keys and values of a bottleneck are no one tensor");
    fused_projections(context, *fused, section, scope, path, a);
  } else if (!made_of_latents) {
    auto one = [&](const char* key, const char* name, Role role, Role bias_role, int64_t heads, int64_t width,
                   Linear& target) {
      if (!section.get(key)) refuse_policy(section, std::string("attention without \"qkv\" needs \"") + key + "\"");
      const int64_t head_dim = role == Role::ValueWeight ? a.value_width() : a.head_dim;
      const bool rows = role != Role::QueryWeight && a.value_dim == 0;
      const ParamRequest request{.role = rows ? role : Role::QueryWeight,
                                 .path = path + name,
                                 .shape = {heads * head_dim, width},
                                 .units = rows ? heads * head_dim : heads,
                                 .block = rows ? head_dim : 1,
                                 .head_dim = head_dim};
      if (auto made =
              projection(context, section.get(key), section, scope, request, rows ? bias_role : Role::QueryBias))
        target = std::move(*made);
    };
    const int64_t query = context.query_width > 0 ? context.query_width : hidden,
                  value = context.value_width > 0 ? context.value_width : source_width;
    if (section.get("q_gate"))
      gated_queries(context, section, scope, path, a);
    else
      one("q", ".query", Role::QueryWeight, Role::QueryBias, a.heads, query, a.query);
    if (section.get("kv")) {
      fused_keys_and_values(context, section, scope, path, source_width, a);
    } else if (!a.reuses) {
      one("k", ".key", Role::KeyWeight, Role::KeyBias, a.kv_heads, source_width, a.key);
      if (!a.values_are_keys) one("v", ".value", Role::ValueWeight, Role::ValueBias, a.kv_heads, value, a.value);
    }
  }
  const ParamRequest request{.role = Role::OutWeight,
                             .path = path + ".out",
                             .shape = {hidden, (a.span_convolution ? 2 : 1) * a.heads * a.value_width()},
                             .units = a.heads,
                             .segments = a.span_convolution ? 2 : 1,
                             .head_dim = a.value_width()};
  if (!section.get("out")) refuse_policy(section, "attention needs \"out\"");
  if (auto made = projection(context, section.get("out"), section, scope, request, Role::OutBias))
    a.out = std::move(*made);
}

std::optional<RelativePositionBias> Builder::relative_position_bias(const Context& context, const Node& section,
                                                                    const Scope& scope, const std::string& path,
                                                                    const Attention& a) {
  const std::optional<Binding> row = binder_.binding(section.get("relative_position_bias"), scope.variables);
  if (!row || !row->names()) return std::nullopt;
  RelativePositionBias bias;
  bias.bidirectional = a.mask == Mask::Full;
  if (const Node* node = row->option("num_buckets")) bias.num_buckets = evaluate_int(*node, scope.variables);
  if (const Node* node = row->option("max_distance")) bias.max_distance = evaluate_int(*node, scope.variables);
  if (const Node* node = row->option("bidirectional")) bias.bidirectional = evaluate_bool(*node, scope.variables);
  const int64_t exact = bias.num_buckets / (bias.bidirectional ? 4 : 2);  // distances with a bucket of their own
  expect(exact >= 1 && bias.num_buckets <= 1 << 20, *row->node, "num_buckets", static_cast<double>(bias.num_buckets),
         "4 to 2^20");
  expect(bias.max_distance > exact && bias.max_distance <= 1 << 30, *row->node, "max_distance",
         static_cast<double>(bias.max_distance), "more than " + std::to_string(exact) + ", at most 2^30");
  Scope owner = scope;  // the layer whose table this one uses
  if (const Node* node = row->option("layer")) {
    owner = block_scope(context, section, evaluate_int(*node, scope.variables));
    owner.layer = scope.layer;
  }
  const ParamRequest request{.role = Role::RelativePositionBias,
                             .path = path + ".relative_position_bias",
                             .shape = {bias.num_buckets, a.heads},
                             .units = a.heads};
  bias.table = binder_.bind(request, binder_.names(*row->names(), owner, ".weight"), *row, owner).value_or(Param{});
  return bias;
}

std::optional<Alibi> Builder::alibi(const Node& section, const Scope& scope) {
  const Node* node = section.get("alibi");
  if (!node || (node->is_map() ? !holds(node, scope.variables) : !evaluate_bool(*node, scope.variables)))
    return std::nullopt;
  Alibi alibi;
  if (const Node* scaled = node->get("scaled")) alibi.scaled = evaluate_bool(*scaled, scope.variables);
  if (const Node* bf16 = node->get("bf16")) alibi.bf16 = evaluate_bool(*bf16, scope.variables);
  return alibi;
}

std::optional<Param> Builder::sinks(const Node& section, const Scope& scope, const std::string& path, int64_t heads) {
  const std::optional<Binding> row = binder_.binding(section.get("sinks"), scope.variables);
  if (!row || !row->names()) return std::nullopt;
  const ParamRequest request{.role = Role::AttentionSink, .path = path + ".sinks", .shape = {heads}, .units = heads};
  return binder_.bind(request, binder_.names(*row->names(), scope, ""), *row, scope);
}

/// Names the stack that cross-attention reads and returns the width of its states.
int64_t Builder::set_source(const Context& context, const Node& section, Attention& a) const {
  const Node* source = section.get("source");
  const bool here = source && contexts_.contains(source->text);
  if (!here && outer_) {
    a.source = outer_->stack;
    return outer_->width.value_or(context.sizes.hidden);
  }
  if (!source || source->text == context.scope.stack || (!here && !binder_.is_dry_run()))
    refuse_policy(section, "cross needs \"source\", a stack that stands above this one");
  a.source = source->text;
  return here ? contexts_.at(source->text).sizes.hidden : context.sizes.hidden;
}

void Builder::head_sizes(const Context& context, const Node& section, const Scope& scope, Attention& a) const {
  auto size = [&](const char* key, int64_t default_value) {
    const Node* node = section.get(key);
    if (!node) return default_value;
    const int64_t found = evaluate_int(*node, scope.variables);
    expect(found <= int64_t{1} << 30, *node, key, static_cast<double>(found),
           "at most 2^30");  // as a stack's sizes: products stay below 2^63
    return found;
  };
  a.heads = size("heads", context.sizes.heads);
  a.kv_heads = size("kv_heads", context.source_width > 0 ? a.heads : context.sizes.kv_heads);
  a.head_dim = size("head_dim", context.sizes.head_dim);
  a.value_dim = size("value_dim", context.source_width > 0 ? a.head_dim : 0);
  if (a.value_dim < (context.source_width > 0 ? 1 : 0) || (a.value_dim > 0 && a.heads != a.kv_heads)) {
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives heads a width of " +
                                             std::to_string(a.value_dim) + " for values, " + std::to_string(a.heads) +
                                             " heads and " + std::to_string(a.kv_heads) +
                                             " kv heads; expected a width above 0, and as many of both");
  }
  if (a.heads <= 0 || a.kv_heads <= 0 || a.head_dim <= 0 || a.heads % a.kv_heads) {
    throw Error(Reason::ModelUnreadable, section.where() + ": config.json gives " + std::to_string(a.heads) +
                                             " heads, " + std::to_string(a.kv_heads) + " kv heads and a head size of " +
                                             std::to_string(a.head_dim) +
                                             "; expected heads to be a multiple of kv heads, and all above 0");
  }
  if (const Node* mask = section.get("mask"))
    a.mask = parse_keyword(*mask, scope.variables, mask_words) == "causal" ? Mask::Causal : Mask::Full;
}

Attention Builder::attention(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                             bool cross) {
  Attention a;
  head_sizes(context, section, scope, a);
  const Node* scale =
      first_of({section.get("scale"), scope.variables.lets[0]->get("scale"), option(policy_.get("let"), "scale")});
  a.scale = scale ? evaluate_number(*scale, scope.variables) : std::pow(static_cast<double>(a.head_dim), -0.5);
  if (const Node* window = section.get("window")) {
    a.window = evaluate_int(*window, scope.variables);
    expect(a.window >= 0, *window, "the window", static_cast<double>(a.window), "0 (none) or more tokens");
  }
  if (const Node* windows = section.get("patch_windows")) a.in_patch_windows = evaluate_bool(*windows, scope.variables);
  if (const Node* softcap = section.get("softcap")) {
    a.softcap = evaluate_number(*softcap, scope.variables);
    expect(a.softcap >= 0, *softcap, "softcap", a.softcap, "0 (none) or more");
  }
  a.alibi = alibi(section, scope);
  const int64_t source_width = cross                      ? set_source(context, section, a)
                               : context.source_width > 0 ? context.source_width
                               : context.query_width > 0  ? context.query_width
                                                          : context.sizes.hidden;
  if (context.source_width > 0) a.source = context.scope.stack;
  a.norm = norm(context, &section, scope, path + ".norm", context.sizes.hidden);
  a.post_norm = norm(context, &section, scope, path + ".post_norm", context.sizes.hidden, "post_norm");
  a.span_convolution = span_convolution(context, section, scope, path, a);
  if (const Node* same = section.get("values_are_keys")) a.values_are_keys = evaluate_bool(*same, scope.variables);
  a.reuses = reused_layer(section, scope);
  if ((a.values_are_keys || a.reuses) && (section.get("qkv") || section.get("kv")))
    refuse_policy(section,
                  "\"values_are_keys\" and \"reuses\" are of queries, keys and values in tensors of their own");
  a.rotary = rotary(context, section, scope, a);
  projections(context, section, scope, path, source_width, a);
  a.entity_queries = entity_queries(context, section, scope, path, a);
  a.pattern = pattern(context, section, scope, path, a);
  a.chunks = chunks(section, scope);
  a.projection_norms = projection_norms(context, section, scope, path, a);
  if (!a.projection_norms) {
    a.query_norm = norm(context, &section, scope, path + ".query_norm", a.head_dim, "query_norm");
    if (!a.reuses) a.key_norm = norm(context, &section, scope, path + ".key_norm", a.head_dim, "key_norm");
  }
  if (!a.reuses) a.value_norm = norm(context, &section, scope, path + ".value_norm", a.value_width(), "value_norm");
  if (const Node* after = section.get("norms_after_rotary"))
    a.norms_after_rotary = evaluate_bool(*after, scope.variables);
  if (a.norms_after_rotary && a.projection_norms)
    refuse_policy(section, "\"norms_after_rotary\" is of norms of heads, not of norms over a projection");
  a.relative_position_bias = relative_position_bias(context, section, scope, path, a);
  a.relative_content = relative_content(context, section, scope, path, a);
  a.content_buckets = content_buckets(context, section, scope, path, a);
  a.quantized = quantized_attention(section, scope, path + ".quantized");
  a.sinks = sinks(section, scope, path, a.heads);
  if (const Node* shown = section.get("attentions"))
    a.shows_scores = parse_keyword(*shown, scope.variables, attentions_words) == "scores";
  if (a.shows_scores && a.is_sparse()) refuse_policy(section, "\"attentions: scores\" is of full attention only");
  return a;
}

}  // namespace pm::policy
