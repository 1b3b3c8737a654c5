// See builder.h: layers and what they are made of.
#include <cmath>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/words.h"

namespace pm::policy {

namespace {

const Node* first_of(std::initializer_list<const Node*> nodes) {
  for (const Node* node : nodes)
    if (node) return node;
  return nullptr;
}

const Node* option(const Node* section, std::string_view key) { return section ? section->get(key) : nullptr; }

bool holds(const Node* section, const Scope& scope) {
  const Node* when = option(section, "when");
  return section && (!when || evaluate_bool(*when, scope));
}

/// Refuses what config.json gives for `what` when it is not `sound`.
void expect(bool sound, const Node& at, const std::string& what, double found, const std::string& expected) {
  if (sound) return;
  nlohmann::json number = found;
  if (found == std::floor(found) && std::abs(found) < 1e15) number = static_cast<int64_t>(found);
  throw Error(ErrorKind::Model, "ModelUnreadable", at.where() + ": " + what + " is " + number.dump() + " with this config.json, expected " + expected);
}

}  // namespace

std::string word_of(const Node& node, const Scope& scope, const std::vector<std::string_view>& allowed) {
  auto known = [&](const std::string& word) { return std::find(allowed.begin(), allowed.end(), word) != allowed.end(); };
  if (known(node.text)) return node.text;
  const std::string word = evaluate_text(node, scope);
  if (known(word)) return word;
  std::string list;
  for (std::string_view one : allowed) list += (list.empty() ? "" : ", ") + std::string(one);
  throw Error(ErrorKind::Model, "ModelUnreadable",
              "\"" + node.text + "\" (" + node.where() + ") is \"" + word + "\" with this config.json; served are " + list);
}

std::string Builder::activation(const Node* node, const Scope& scope) {
  Node act;
  if (!node) {
    act.file = policy_.file;
    act.line = policy_.line;
    act.kind = Node::Kind::Scalar;
    act.text = "act";
    node = &act;
  }
  for (std::string_view word : activation_words)
    if (node->text == word) return node->text;
  // the same functions under other names in config.json
  static const std::map<std::string, std::string> aliases{{"swish", "silu"}, {"gelu_pytorch_tanh", "gelu_new"}, {"gelu_python", "gelu"}, {"gelu_fast", "gelu_new"},
                                                          {"gelu_accurate", "gelu_new"}, {"gelu_python_tanh", "gelu_new"}};
  const std::string word = evaluate_text(*node, scope);
  if (auto alias = aliases.find(word); alias != aliases.end()) return alias->second;
  return word_of(*node, scope, activation_words);
}

Place Builder::block_place(const Context& context, const Node& section, int64_t layer) const {
  Place place = context.place;
  place.layer = static_cast<int>(layer);
  place.scope.layer = layer;
  if (const Node* at = option(context.layer, "at")) binder_.go_to(*at, place);
  if (const Node* at = section.get("at")) binder_.go_to(*at, place);
  return place;
}

std::optional<Param> Builder::bias(const Row& row, const Node* block, const Context& context, const Place& place, Ask ask, bool outside) {
  const Node* spelled = row.option("bias");
  std::vector<std::string> names;
  ask.units = std::max<int64_t>(ask.units, 1);
  if (spelled && spelled->is_map()) {
    const std::optional<Row> own = binder_.row(spelled, place.scope);
    if (!own) return std::nullopt;
    ask.first_wins = true;
    return binder_.bind(std::move(ask), binder_.names(*own->names(), place, ""), *own, place);
  }
  if (spelled && (spelled->is_list() || spelled->text.starts_with('='))) {
    names = binder_.names(*spelled, place, "");
    ask.first_wins = true;
  } else {
    const Node* wanted = first_of({spelled, option(block, "bias"), outside ? nullptr : option(context.layer, "bias")});
    if (wanted ? !evaluate_bool(*wanted, place.scope) : !outside) return std::nullopt;
    const Node* from = row.names();
    if (!from) refuse_policy(*row.node, "a row with a bias needs \"from\"");
    names = binder_.names(*from, place, ".bias");
  }
  // a tied weight has no bias to share, an optional one takes its bias with it
  Node untied = *row.node;
  std::erase_if(untied.entries, [](const auto& entry) { return entry.first.text == "tie"; });
  return binder_.bind(std::move(ask), names, Row{&untied}, place);
}

std::optional<Linear> Builder::linear(const Context& context, const Node* node, const Node* block, const Place& place, Ask weight, Role bias_role, bool outside) {
  const std::optional<Row> row = binder_.row(node, place.scope);
  if (!row) return std::nullopt;
  const Node* stored = first_of({row->option("stored"), option(block, "stored"), outside ? nullptr : option(context.layer, "stored")});
  weight.in_out = stored && word_of(*stored, place.scope, stored_words) == "in_out";
  weight.f32_if_f16 = row->option("keep") != nullptr;
  const std::vector<std::string> names = row->names() ? binder_.names(*row->names(), place, ".weight") : std::vector<std::string>{};
  Ask second = weight;
  second.role = bias_role;
  second.in_out = false;
  second.path += ".bias";
  weight.path += ".weight";
  std::optional<Param> bound = binder_.bind(weight, names, *row, place);
  // an optional row that the checkpoint lacks is absent; a required one is already noted as missing
  const Node* optional = row->option("optional");
  if (!bound && optional && evaluate_bool(*optional, place.scope)) {
    bias(*row, block, context, place, second, outside);
    return std::nullopt;
  }
  second.shape = {bound ? bound->shape[0] : weight.shape[0]};
  if (weight.shape.size() == 1) second.shape.clear();   // one output: its bias is one number
  if (bound && weight.units < 0) second.units = bound->units;
  if (rule_of(bias_role).dim < 0) second.units = 1;
  return Linear{bound.value_or(Param{}), bias(*row, block, context, place, second, outside)};
}

std::optional<Norm> Builder::norm(const Context& context, const Node* section, const Place& place, const std::string& path, int64_t width,
                                  std::string_view key) {
  const std::optional<Row> row = binder_.row(option(section, key), place.scope);
  if (!row || !row->names()) return std::nullopt;
  Norm norm;
  const Node* kind = first_of({row->option("kind"), option(context.layer, "norm")});
  const std::string word = kind ? word_of(*kind, place.scope, norm_words) : "layer";
  norm.kind = word == "layer" ? NormKind::Layer : word == "rms" ? NormKind::Rms : NormKind::RmsZeroCentred;
  const Node* eps = first_of({row->option("eps"), place.scope.lets.empty() ? nullptr : place.scope.lets[0]->get("eps"), option(policy_.get("let"), "eps")});
  if (eps) norm.eps = evaluate_number(*eps, place.scope);
  if (eps) expect(norm.eps >= 0, *eps, "eps", norm.eps, "no negative number");
  Ask ask{.role = Role::NormGain, .path = path + ".gain", .shape = {width}};
  norm.gain = binder_.bind(ask, binder_.names(*row->names(), place, ".weight"), *row, place);
  const Node* biased = row->option("bias");
  const bool named = biased && (biased->is_list() || biased->text.starts_with('='));
  if (biased && !named ? evaluate_bool(*biased, place.scope) : norm.kind == NormKind::Layer || named) {
    ask.role = Role::NormBias;
    ask.path = path + ".bias";
    norm.bias = binder_.bind(ask, named ? binder_.names(*biased, place, "") : binder_.names(*row->names(), place, ".bias"), *row, place);
  }
  return norm;
}

/// How the parts lie; `order`: of the parts of a block, as they are stored.
void Builder::fuse(const Node& kind, const Place& place, const Attention& a, Ask& ask, std::vector<std::string>& order) {
  const auto unreadable = [&](const std::string& what) { throw Error(ErrorKind::Model, "ModelUnreadable", kind.where() + ": " + what); };
  const std::string heads = std::to_string(a.heads), kv_heads = std::to_string(a.kv_heads);
  if (!kind.is_map()) {
    const std::string word = word_of(kind, place.scope, fused_words);
    ask.fused = word == "concat" ? Fused::Concat : word == "per_head" ? Fused::PerHead : Fused::Grouped;
    if (ask.fused == Fused::PerHead && a.heads != a.kv_heads) {
      unreadable("fused " + word + " needs as many kv heads as heads, config.json gives " + kv_heads + " and " + heads);
    }
    return;
  }
  const Node* blocks = kind.get("blocks");
  if (const Node* given = kind.get("order")) order = texts_of(given);
  std::vector<std::string> sorted = order;
  std::sort(sorted.begin(), sorted.end());
  if (!blocks || sorted != std::vector<std::string>{"k", "q", "v"}) refuse_policy(kind, "fused as a section needs \"blocks\" and \"order\", a list of q, k and v");
  ask.fused = Fused::Blocks;
  ask.blocks = evaluate_int(*blocks, place.scope);
  if (ask.blocks < 1 || a.heads % ask.blocks || a.heads != a.kv_heads) {
    unreadable("config.json gives " + heads + " heads and " + kv_heads + " kv heads; expected as many of both, a multiple of the " + std::to_string(ask.blocks) + " blocks in which they lie");
  }
}

void Builder::fused_projections(const Context& context, const Row& row, const Node& section, const Place& place, const std::string& path, Attention& a) {
  const Node* kind = row.option("fused");
  if (!kind) refuse_policy(*row.node, "qkv needs \"fused\": concat, per_head, grouped or a section");
  Ask ask{.role = Role::QueryWeight, .units = a.heads, .parts = 3, .stored_rows = (a.heads + 2 * a.kv_heads) * a.head_dim};
  std::vector<std::string> order{"q", "k", "v"};
  fuse(*kind, place, a, ask, order);
  ask.group = a.heads / a.kv_heads;
  const Role weights[] = {Role::QueryWeight, Role::KeyWeight, Role::ValueWeight}, biases[] = {Role::QueryBias, Role::KeyBias, Role::ValueBias};
  const char* names[] = {".query", ".key", ".value"};
  Linear* targets[] = {&a.query, &a.key, &a.value};
  for (int part = 0; part < 3; ++part) {
    ask.role = weights[part];
    ask.path = path + names[part];
    ask.part = part;
    ask.place = static_cast<int>(std::find(order.begin(), order.end(), part_words[static_cast<size_t>(part)]) - order.begin());
    ask.shape = {(part == 0 ? a.heads : a.kv_heads) * a.head_dim, context.sizes.hidden};
    ask.units = part == 0 ? a.heads : ask.shape[0];
    ask.block = part == 0 ? 1 : a.head_dim;
    if (auto made = linear(context, row.node, &section, place, ask, biases[part])) *targets[part] = std::move(*made);
  }
}

void Builder::projections(const Context& context, const Node& section, const Place& place, const std::string& path, int64_t source_width, Attention& a) {
  const int64_t hidden = context.sizes.hidden;
  if (const std::optional<Row> fused = binder_.row(section.get("qkv"), place.scope)) {
    fused_projections(context, *fused, section, place, path, a);
  } else {
    auto one = [&](const char* key, const char* name, Role role, Role bias_role, int64_t heads, int64_t width, Linear& target) {
      if (!section.get(key)) refuse_policy(section, std::string("attention without \"qkv\" needs \"") + key + "\"");
      const bool rows = role != Role::QueryWeight;
      const Ask ask{.role = role, .path = path + name, .shape = {heads * a.head_dim, width}, .units = rows ? heads * a.head_dim : heads, .block = rows ? a.head_dim : 1};
      if (auto made = linear(context, section.get(key), &section, place, ask, bias_role)) target = std::move(*made);
    };
    one("q", ".query", Role::QueryWeight, Role::QueryBias, a.heads, hidden, a.query);
    one("k", ".key", Role::KeyWeight, Role::KeyBias, a.kv_heads, source_width, a.key);
    one("v", ".value", Role::ValueWeight, Role::ValueBias, a.kv_heads, source_width, a.value);
  }
  const Ask ask{.role = Role::OutWeight, .path = path + ".out", .shape = {hidden, a.heads * a.head_dim}, .units = a.heads};
  if (!section.get("out")) refuse_policy(section, "attention needs \"out\"");
  if (auto made = linear(context, section.get("out"), &section, place, ask, Role::OutBias)) a.out = std::move(*made);
}

std::optional<BucketBias> Builder::bucket_bias(const Context& context, const Node& section, const Place& place, const std::string& path, const Attention& a) {
  const std::optional<Row> row = binder_.row(section.get("bucket_bias"), place.scope);
  if (!row || !row->names()) return std::nullopt;
  BucketBias bias;
  bias.bidirectional = a.mask == Mask::Full;
  if (const Node* node = row->option("buckets")) bias.buckets = evaluate_int(*node, place.scope);
  if (const Node* node = row->option("far")) bias.far = evaluate_int(*node, place.scope);
  if (const Node* node = row->option("bidirectional")) bias.bidirectional = evaluate_bool(*node, place.scope);
  const int64_t exact = bias.buckets / (bias.bidirectional ? 4 : 2);   // distances with a bucket of their own
  expect(exact >= 1 && bias.buckets <= 1 << 20, *row->node, "the number of buckets", static_cast<double>(bias.buckets), "4 to 2^20");
  expect(bias.far > exact && bias.far <= 1 << 30, *row->node, "the far distance", static_cast<double>(bias.far), "more than " + std::to_string(exact) + ", at most 2^30");
  Place owner = place;   // the layer whose table this one uses
  if (const Node* node = row->option("layer")) {
    owner = block_place(context, section, evaluate_int(*node, place.scope));
    owner.layer = place.layer;
  }
  const Ask ask{.role = Role::BucketBias, .path = path + ".bucket_bias", .shape = {bias.buckets, a.heads}, .units = a.heads};
  bias.table = binder_.bind(ask, binder_.names(*row->names(), owner, ".weight"), *row, owner).value_or(Param{});
  return bias;
}

std::optional<Rotary> Builder::rotary(const Node& section, const Place& place, const Attention& a) {
  const Node* node = section.get("rotary");
  if (!holds(node, place.scope)) return std::nullopt;
  Rotary rotary;
  rotary.dims = a.head_dim;
  if (const Node* style = node->get("style")) rotary.style = word_of(*style, place.scope, rotary_words) == "half" ? RotaryStyle::Half : RotaryStyle::Interleaved;
  if (const Node* dims = node->get("dims")) rotary.dims = evaluate_int(*dims, place.scope);
  if (const Node* theta = node->get("theta")) rotary.theta = evaluate_number(*theta, place.scope);
  expect(rotary.dims > 0 && rotary.dims % 2 == 0 && rotary.dims <= a.head_dim, *node, "the number of rotary dimensions", static_cast<double>(rotary.dims),
         "an even number up to the head size " + std::to_string(a.head_dim));
  expect(rotary.theta > 0, *node, "theta", rotary.theta, "a number above 0");
  if (const Node* values = node->get("values")) rotary.values = evaluate_bool(*values, place.scope);
  if (const Node* scaling = node->get("scaling")) rotary.scaling = evaluate(*scaling, place.scope, true);
  for (const char* key : {"rope_type", "type"}) {   // what transformers >= 5 writes where there is no scaling
      if (rotary.scaling.is_object() && rotary.scaling.value(key, nlohmann::json()) == "default") rotary.scaling = nullptr;
  }
  return rotary;
}

std::optional<Alibi> Builder::alibi(const Node& section, const Place& place) {
  const Node* node = section.get("alibi");
  if (!node || (node->is_map() ? !holds(node, place.scope) : !evaluate_bool(*node, place.scope))) return std::nullopt;
  Alibi alibi;
  if (const Node* scaled = node->get("scaled")) alibi.scaled = evaluate_bool(*scaled, place.scope);
  if (const Node* bf16 = node->get("bf16")) alibi.bf16 = evaluate_bool(*bf16, place.scope);
  return alibi;
}

Attention Builder::attention(const Context& context, const Node& section, const Place& place, const std::string& path, bool cross) {
  Attention a;
  auto size = [&](const char* key, int64_t usual) {
    const Node* node = section.get(key);
    if (!node) return usual;
    const int64_t found = evaluate_int(*node, place.scope);
    expect(found <= int64_t{1} << 30, *node, key, static_cast<double>(found), "at most 2^30");   // as a stack's sizes: products stay below 2^63
    return found;
  };
  a.heads = size("heads", context.sizes.heads);
  a.kv_heads = size("kv_heads", context.sizes.kv_heads);
  a.head_dim = size("head_dim", context.sizes.head_dim);
  if (a.heads <= 0 || a.kv_heads <= 0 || a.head_dim <= 0 || a.heads % a.kv_heads) {
    throw Error(ErrorKind::Model, "ModelUnreadable",
                section.where() + ": config.json gives " + std::to_string(a.heads) + " heads, " + std::to_string(a.kv_heads) + " kv heads and a head size of " +
                    std::to_string(a.head_dim) + "; expected heads to be a multiple of kv heads, and all above 0");
  }
  const Node* scale = first_of({section.get("scale"), place.scope.lets[0]->get("scale"), option(policy_.get("let"), "scale")});
  a.scale = scale ? evaluate_number(*scale, place.scope) : std::pow(static_cast<double>(a.head_dim), -0.5);
  if (const Node* mask = section.get("mask")) a.mask = word_of(*mask, place.scope, mask_words) == "causal" ? Mask::Causal : Mask::Full;
  if (const Node* window = section.get("window")) {
    a.window = evaluate_int(*window, place.scope);
    expect(a.window >= 0, *window, "the window", static_cast<double>(a.window), "0 (none) or more tokens");
  }
  if (const Node* softcap = section.get("softcap")) {
    a.softcap = evaluate_number(*softcap, place.scope);
    expect(a.softcap >= 0, *softcap, "softcap", a.softcap, "0 (none) or more");
  }
  a.alibi = alibi(section, place);
  int64_t source_width = context.sizes.hidden;
  if (cross) {
    const Node* source = section.get("source");
    if (!source || source->text == context.place.stack || (!contexts_.contains(source->text) && !binder_.rehearsing())) {
      refuse_policy(section, "cross needs \"source\", a stack that stands above this one");
    }
    a.source = source->text;
    if (contexts_.contains(source->text)) source_width = contexts_.at(source->text).sizes.hidden;
  }
  a.norm = norm(context, &section, place, path + ".norm", context.sizes.hidden);
  a.post_norm = norm(context, &section, place, path + ".post_norm", context.sizes.hidden, "post_norm");
  projections(context, section, place, path, source_width, a);
  a.query_norm = norm(context, &section, place, path + ".query_norm", a.head_dim, "query_norm");
  a.key_norm = norm(context, &section, place, path + ".key_norm", a.head_dim, "key_norm");
  a.bucket_bias = bucket_bias(context, section, place, path, a);
  a.rotary = rotary(section, place, a);
  return a;
}

/// Both in one tensor, the gate first.
void Builder::gate_and_up(const Context& context, const Node& section, const Place& place, const std::string& path, Mlp& mlp) {
  const Role weights[] = {Role::GateWeight, Role::UpWeight}, biases[] = {Role::GateBias, Role::UpBias};
  const char* names[] = {".gate", ".up"};
  for (int part = 0; part < 2; ++part) {
    const Ask ask{.role = weights[part], .path = path + names[part], .shape = {mlp.width, context.sizes.hidden}, .units = mlp.width, .fused = Fused::Concat, .part = part, .parts = 2,
                  .stored_rows = 2 * mlp.width};
    std::optional<Linear> made = linear(context, section.get("gate_up"), &section, place, ask, biases[part]);
    if (made && part == 0) mlp.gate = std::move(*made);
    else if (made) mlp.up = std::move(*made);
  }
}

Mlp Builder::mlp(const Context& context, const Node& section, const Place& place, const std::string& path) {
  const int64_t width = context.sizes.ffn, hidden = context.sizes.hidden;
  if (width <= 0) throw Error(ErrorKind::Model, "ModelUnreadable", section.where() + ": config.json gives an MLP of " + std::to_string(width) + " columns");
  Mlp mlp;
  mlp.width = width;
  mlp.activation = activation(section.get("act"), place.scope);
  mlp.norm = norm(context, &section, place, path + ".norm", hidden);
  mlp.post_norm = norm(context, &section, place, path + ".post_norm", hidden, "post_norm");
  const bool both = section.get("gate_up") != nullptr;
  if ((!both && !section.get("up")) || !section.get("down")) refuse_policy(section, "an MLP needs \"up\" (or \"gate_up\") and \"down\"");
  const Ask up{.role = Role::UpWeight, .path = path + ".up", .shape = {width, hidden}, .units = width};
  const Ask gate{.role = Role::GateWeight, .path = path + ".gate", .shape = {width, hidden}, .units = width};
  const Ask down{.role = Role::DownWeight, .path = path + ".down", .shape = {hidden, width}, .units = width};
  if (both) gate_and_up(context, section, place, path, mlp);
  else {
    if (auto made = linear(context, section.get("up"), &section, place, up, Role::UpBias)) mlp.up = std::move(*made);
    mlp.gate = linear(context, section.get("gate"), &section, place, gate, Role::GateBias);
  }
  if (auto made = linear(context, section.get("down"), &section, place, down, Role::DownBias)) mlp.down = std::move(*made);
  return mlp;
}

Layer Builder::layer(const Context& context, int64_t number, const std::string& path) {
  const Node& section = *context.section;
  Layer layer;
  Place place = context.place;
  place.scope.layer = number;
  if (const Node* order = option(context.layer, "order")) {
    const std::string word = word_of(*order, place.scope, order_words);
    layer.order = word == "pre" ? Order::Pre : word == "post" ? Order::Post : Order::Parallel;
  }
  const Node *attn = section.get("attn"), *cross = section.get("cross"), *ffn = section.get("mlp");
  if (!attn || !ffn) refuse_policy(section, "a stack needs \"attn\" and \"mlp\"");
  layer.attention = attention(context, *attn, block_place(context, *attn, number), path + ".attn", false);
  if (const Node* normed = option(context.layer, "residual_normed")) layer.residual_normed = evaluate_bool(*normed, place.scope);
  const Node* source = option(cross, "source");
  if (source && policy_.get("stacks")->get(source->text) && !contexts_.contains(source->text) && !binder_.rehearsing()) {
    // a class without the stack that is attended to: its weights are known and not loaded (BartForCausalLM)
    binder_.rehearse(true);
    if (holds(cross, place.scope)) attention(context, *cross, block_place(context, *cross, number), path + ".cross", true);
    binder_.rehearse(false);
  } else if (holds(cross, place.scope)) layer.cross = attention(context, *cross, block_place(context, *cross, number), path + ".cross", true);
  layer.mlp = mlp(context, *ffn, block_place(context, *ffn, number), path + ".mlp");
  return layer;
}

}  // namespace pm::policy
