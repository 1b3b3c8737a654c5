// SPDX-License-Identifier: Apache-2.0
// Builder: stacks with their inputs and outputs.
#include <algorithm>
#include <cmath>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// The maximum number of layers, which bounds loops over a hostile config.json.
constexpr int64_t most_layers = 4096;
/// The maximum number of indices per token.
constexpr int64_t most_columns = 64;

[[noreturn]] void unreadable(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

/// Refuses further attention of a layer whose heads are grouped otherwise than in the stack's first layer: it is
/// partitioned as that one is.
void expect_alike(const Node& section, const Attention& first, const Attention& other) {
  const int64_t wanted = first.heads / first.kv_heads, found = other.heads / other.kv_heads;
  if (other.head_dim == first.head_dim && found == wanted) return;
  unreadable(section.where() + ": the stack's first attention has " + std::to_string(wanted) + " heads of size " +
             std::to_string(first.head_dim) + " per kv head, another of its attentions " + std::to_string(found) +
             " of size " + std::to_string(other.head_dim) + "; expected the same throughout a stack");
}

}  // namespace

std::array<int64_t, 2> height_and_width(const Node& node, const Variables& variables) {
  const nlohmann::json value = evaluate(node, variables);
  const auto whole = [](const nlohmann::json& side) { return side.is_number_integer() && side.get<int64_t>() > 0; };
  if (whole(value)) return {value.get<int64_t>(), value.get<int64_t>()};
  if (!value.is_array() || value.size() != 2 || !whole(value[0]) || !whole(value[1])) {
    unreadable("\"" + node.text + "\" (" + node.where() + ") is " + value.dump() +
               " with this config.json, expected a size or a height and a width");
  }
  return {value[0].get<int64_t>(), value[1].get<int64_t>()};
}

Variables Builder::variables() const { return {&view_.config, {policy_.get("let")}, std::nullopt}; }

Sizes Builder::sizes(const Node& section, const Variables& variables) {
  auto value = [&](const char* name, int64_t default_value) {
    for (const Node* lets : variables.lets) {
      const Node* node = lets ? lets->get(name) : nullptr;
      if (!node) continue;
      const int64_t found = evaluate_int(*node, variables);
      if (found < 0) unreadable(node->where() + ": config.json gives " + name + " = " + std::to_string(found));
      return found;
    }
    return default_value;
  };
  Sizes sizes;
  sizes.layers = value("layers", 0);
  if (sizes.layers < 1 || sizes.layers > most_layers)
    unreadable(section.where() + ": config.json gives " + std::to_string(sizes.layers) + " layers, expected 1 to 4096");
  sizes.hidden = value("hidden", 0);
  sizes.heads = value("heads", 0);
  if (sizes.hidden < 1 || sizes.heads < 1)
    unreadable(section.where() + ": config.json gives hidden " + std::to_string(sizes.hidden) + " and " +
               std::to_string(sizes.heads) + " heads");
  sizes.kv_heads = value("kv_heads", sizes.heads);
  sizes.head_dim = value("head_dim", sizes.hidden / sizes.heads);
  sizes.embedding = value("embedding", sizes.hidden);
  sizes.ffn = value("ffn", 0);
  sizes.vocab = value("vocab", 0);
  sizes.positions = value("positions", 0);
  // products of two sizes must stay below 2^63
  for (int64_t size : {sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.embedding, sizes.ffn,
                       sizes.vocab, sizes.positions}) {
    if (size > (int64_t{1} << 30))
      unreadable(section.where() + ": config.json gives a size of " + std::to_string(size) +
                 ", at most 2^30 are served");
  }
  return sizes;
}

Builder::Context Builder::context(const std::string& name, const Node& section) {
  Node values = section;  // the stack's own `let` and sizes in one map
  values.kind = Node::Kind::Map;
  values.entries.clear();
  if (const Node* let = section.get("let")) values.entries = let->entries;
  for (const auto& [key, value] : section.entries)
    if (std::find(size_words.begin(), size_words.end(), key.text) != size_words.end())
      values.entries.emplace_back(key, value);
  lets_.push_back(std::move(values));
  Context context;
  context.section = &section;
  context.layer = section.get("layer");
  context.scope.stack = name;
  context.scope.variables = {&view_.config, {&lets_.back(), policy_.get("let")}, std::nullopt};
  // the default sizes are variables that expressions may use
  context.sizes = sizes(section, context.scope.variables);
  for (auto [key, size] : {std::pair{"head_dim", context.sizes.head_dim},
                           {"kv_heads", context.sizes.kv_heads},
                           {"embedding", context.sizes.embedding}}) {
    if (lets_.back().get(key) || (policy_.get("let") && policy_.get("let")->get(key))) continue;
    Node word = section, number = section;
    word.kind = number.kind = Node::Kind::Scalar;
    word.text = key;
    number.text = std::to_string(size);
    lets_.back().entries.emplace_back(word, number);
  }
  context.scope.prefix = binder_.prefix(section.get("prefix"), context.scope.variables);
  return context;
}

/// Returns the width of what is added to token embeddings: theirs, or that to which they are projected before.
int64_t Builder::input_width(const Context& context, const Input& input) {
  return input.project_tokens ? context.sizes.hidden : context.sizes.embedding;
}

void Builder::position(const Context& context, const Node& section, const Scope& scope, const std::string& path,
                       Input& input) {
  const Node* node = section.get("position");
  if (!node) return;
  if (!node->is_map()) {
    parse_keyword(*node, scope.variables, position_words);  // none
    return;
  }
  const Node *learned = node->get("learned"), *sinusoidal = node->get("sinusoidal");
  if (node->get("convolution")) {
    if (learned || sinusoidal) refuse_policy(*node, "\"convolution\" stands alone among positions");
    input.positional_convolution = positional_convolution(context, *node, scope, path + "positions");
    return;
  }
  if (node->get("grid")) {
    if (learned || sinusoidal) refuse_policy(*node, "\"grid\" stands alone among positions");
    input.grid = grid(context, *node, scope, path + "positions.");
    return;
  }
  if ((input.axial = axial_positions(context, *node, scope, path + "positions."))) {
    if (sinusoidal) refuse_policy(*node, "\"axial\" stands alone, or beside \"learned\" with \"when\"");
    input.position = PositionKind::Axial;
    return;
  }
  if (!learned == !sinusoidal)
    refuse_policy(*node,
                  "a position that is a map needs \"learned\", \"axial\", \"sinusoidal\", \"grid\" or "
                  "\"convolution\"");
  if (const Node* offset = node->get("offset")) {
    input.position_offset = evaluate_int(*offset, scope.variables);
    if (input.position_offset < 0)
      unreadable(offset->where() + ": the offset of positions is " + std::to_string(input.position_offset) +
                 " with this config.json");
  }
  if (const Node* skip = node->get("skip_padding"))
    input.position_skips_padding = evaluate_bool(*skip, scope.variables);
  if (const Node* cells = node->get("reset_per_cell"))
    input.position_reset_per_cell = evaluate_bool(*cells, scope.variables);
  const Node *ids = node->get("position_ids"), *after_norm = node->get("after_norm");
  input.position_ids_are_rows =
      ids ? parse_keyword(*ids, scope.variables, position_ids_words) == "rows" : input.position_skips_padding;
  input.position_after_norm = after_norm && evaluate_bool(*after_norm, scope.variables);
  const int64_t width = input.position_after_norm ? context.sizes.hidden : input_width(context, input);
  if (sinusoidal) {
    if (width < 4)
      unreadable(node->where() + ": sinusoidal positions need a width of at least 4, config.json gives " +
                 std::to_string(width));
    input.position = parse_keyword(*sinusoidal, scope.variables, sinusoid_words) == "paper"
                         ? PositionKind::Paper
                         : PositionKind::Tensor2Tensor;
    return;
  }
  const std::optional<Binding> row = binder_.binding(learned, scope.variables);
  if (!row || !row->names()) return;
  const Node* rows = node->get("rows");
  const int64_t count = rows ? evaluate_int(*rows, scope.variables) : context.sizes.positions + input.position_offset;
  const ParamRequest request{
      .role = Role::PositionEmbedding, .path = path + "positions", .shape = {count, width}, .units = count};
  input.position = PositionKind::Learned;
  input.positions = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope);
}

void Builder::tables(const Node& section, const Scope& scope, const std::string& path, int64_t width,
                     std::vector<IndexTable>& tables) {
  const Node* list = section.get("tables");
  if (!list) return;
  for (const Node& item : list->items) {
    const std::optional<Binding> row = binder_.binding(&item, scope.variables);
    if (!row) continue;
    const Node *kind = item.get("input"), *rows = item.get("rows");
    if (!rows || !row->names()) refuse_policy(item, "a table needs \"from\" and \"rows\"");
    IndexTable table{.table = {}, .input = kind ? kind->text : ""};
    for (auto [key, number] : {std::pair{"column", &table.column}, {"minus_column", &table.minus_column}}) {
      const Node* node = item.get(key);
      if (!node) continue;
      *number = evaluate_int(*node, scope.variables);
      if (*number < 0 || *number >= most_columns)
        refuse_policy(*node, std::string(key) + " is " + std::to_string(*number) + ", expected 0 to " +
                                 std::to_string(most_columns - 1));
    }
    if (table.minus_column >= 0 && table.column < 0) refuse_policy(item, "\"minus_column\" needs \"column\"");
    if (table.input.empty() && (table.column >= 0 || item.get("skip_if_absent")))
      refuse_policy(item,
                    "a table without \"input\" has one row for all tokens, and neither columns nor skip_if_absent");
    if (const Node* skip = item.get("skip_if_absent")) table.skip_if_absent = evaluate_bool(*skip, scope.variables);
    const int64_t count = evaluate_int(*rows, scope.variables);
    if (const Node* default_row = item.get("default_row"))
      table.default_row = evaluate_int(*default_row, scope.variables);
    if (table.default_row < 0 || (table.default_row > 0 && table.default_row >= count))
      unreadable(item.where() + ": default_row is " + std::to_string(table.default_row) + ", the table has " +
                 std::to_string(count));
    if (const Node* generation_row = item.get("generation_row")) {
      table.generation_row = evaluate_int(*generation_row, scope.variables);
      if (*table.generation_row < 0 || *table.generation_row >= count)
        unreadable(item.where() + ": generation_row is " + std::to_string(*table.generation_row) + ", the table has " +
                   std::to_string(count));
    }
    const ParamRequest request{
        .role = Role::IndexTable, .path = path + "tables." + table.key(), .shape = {count, width}};
    const std::optional<Param> bound =
        binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope);
    if (!bound) continue;
    table.table = *bound;
    tables.push_back(std::move(table));
  }
}

std::optional<Features> Builder::features(const Context& context, const Node& section, const Scope& scope,
                                          const std::string& path) {
  const Node* node = section.get("features");
  if (!binder_.binding(node, scope.variables)) return std::nullopt;
  const Node *input = node->get("input"), *mask = node->get("mask"), *align = node->get("align");
  if (!node->get("from") || !input || !mask) refuse_policy(*node, "features need \"from\", \"input\" and \"mask\"");
  Features features{.projection = {},
                    .input = input->text,
                    .mask = mask->text,
                    .positions = {},
                    .align = align ? align->text : "",
                    .tables = {}};
  const ParamRequest request{.role = Role::EmbeddingProjection, .path = path, .shape = {context.sizes.embedding, -1}};
  if (auto made = linear(context, node, nullptr, scope, request, Role::HeadDenseBias, true))
    features.projection = std::move(*made);
  if (const std::optional<Binding> row = binder_.binding(node->get("position"), scope.variables); row && row->names()) {
    const int64_t rows = context.sizes.positions;
    const ParamRequest table{.role = Role::PositionEmbedding,
                             .path = path + ".positions",
                             .shape = {rows, context.sizes.embedding},
                             .units = rows};
    features.positions = binder_.bind(table, binder_.names(*row->names(), scope, ".weight"), *row, scope);
  }
  tables(*node, scope, path + ".", context.sizes.embedding, features.tables);
  return features;
}

/// Sets the size of images. Where the policy does not say it, they are squares of as many patches as the stack has
/// positions.
void Builder::image_size(const Context& context, const Node& section, const Scope& scope, Input& input) {
  const Node* patches = section.get("patches");
  if (!patches || !input.reads_images()) return;
  const std::vector<int64_t>& patch = input.projection->weight.shape;
  const int64_t count = context.sizes.positions - input.extra_tokens();
  if (const Node* image = patches->get("image")) {
    input.image = height_and_width(*image, scope.variables);
  } else {
    const int64_t side = std::llround(std::sqrt(static_cast<double>(std::max<int64_t>(0, count))));
    input.image = {side * patch[2], side * patch[3]};
  }
  const int64_t down = input.image[0] / patch[2], across = input.image[1] / patch[3];
  if (down < 1 || down * across != count) {
    unreadable(patches->where() + ": the image has " + std::to_string(down) + " x " + std::to_string(across) +
               " patches, the stack " + std::to_string(context.sizes.positions) + " positions, of which " +
               std::to_string(input.extra_tokens()) + " are for other tokens");
  }
}

Input Builder::input(const Context& context, const Node& section, const std::string& path) {
  const Sizes& sizes = context.sizes;
  Scope scope = context.scope;
  if (const Node* at = section.get("at")) binder_.enter(*at, scope);
  Input input;
  if (const std::optional<Binding> row = binder_.binding(section.get("token"), scope.variables)) {
    const ParamRequest request{.role = Role::TokenEmbedding,
                               .path = path + "token",
                               .shape = {sizes.vocab, sizes.embedding},
                               .units = sizes.vocab};
    input.token = binder_.bind(
        request, row->names() ? binder_.names(*row->names(), scope, ".weight") : std::vector<std::string>{}, *row,
        scope);
  }
  token_clusters(context, section, scope, path, input);
  if (const Node* scale = section.get("scale")) input.scale = evaluate_number(*scale, scope.variables);
  if (const Node* types = section.get("token_types")) input.token_types = types->text;
  input.convolutions = convolutions(context, section, scope, path + "convolutions");
  input.backbone = backbone(section, scope, path + "backbone");
  input.queries = queries(context, section, scope, path);
  input.pixels = pixels(context, section, scope, path + "pixels.");
  if (const Node* node = section.get("project_tokens")) input.project_tokens = evaluate_bool(*node, scope.variables);
  if (const Node* node = section.get("trigram")) input.trigram = evaluate_bool(*node, scope.variables);
  position(context, section, scope, path, input);
  tables(section, scope, path, input_width(context, input), input.tables);
  input.features = features(context, section, scope, path + "features");
  input.entities = entities(context, section, path + "entities.");
  input.streams = streams(context, section, scope, path + "streams");
  input.targets = targets(context, section, scope, path + "targets");
  input.vectors = vectors(context, section, scope, path + "vectors.");
  const ParamRequest projection{.role = Role::EmbeddingProjection,
                                .path = path + "projection",
                                .shape = {sizes.hidden, (input.trigram ? 3 : 1) * sizes.embedding}};
  input.projection = linear(context, section.get("projection"), nullptr, scope, projection, Role::HeadDenseBias, true);
  patches(context, section, scope, path, input);
  for (auto [key, token] : {std::pair{"class_token", &input.class_token},
                            {"distillation_token", &input.distillation_token},
                            {"mask_token", &input.mask_token}}) {
    const std::optional<Binding> row = binder_.binding(section.get(key), scope.variables);
    if (!row || !row->names()) continue;
    const ParamRequest request{.role = Role::ExtraToken, .path = path + key, .shape = {sizes.hidden}};
    *token = binder_.bind(request, binder_.names(*row->names(), scope, ".weight"), *row, scope);
  }
  image_size(context, section, scope, input);
  if (const Node* node = section.get("norm_projected")) input.norm_projected = evaluate_bool(*node, scope.variables);
  input.norm =
      norm(context, &section, scope, path + "norm", input.norm_projected ? sizes.hidden : input_width(context, input));
  input.latents = latents(context, section, scope, path + "latents");
  input.layer_inputs = layer_inputs(context, section, scope, path + "layer_inputs");
  input.quantized = quantized_input(section, scope, path + "quantized");
  return input;
}

std::optional<Pooler> Builder::pooler(const Context& context, const Node& section, const Scope& scope,
                                      const std::string& path) {
  const Node* when = section.get("when");
  if (when && !evaluate_bool(*when, scope.variables)) return std::nullopt;
  Pooler pooler;
  const Node *pool = given(section.get("pool"), scope.variables), *act = given(section.get("act"), scope.variables);
  if (pool) pooler.pool = parse_enum<Pool>(*pool, scope.variables, pooler_words);
  if (act) pooler.activation = activation(act, scope.variables);
  pooler.norm = norm(context, &section, scope, path + ".norm", context.sizes.hidden);
  if (section.get("from")) {
    const ParamRequest request{.role = Role::HeadDenseWeight, .path = path, .shape = {-1, context.sizes.hidden}};
    pooler.dense = linear(context, &section, nullptr, scope, request, Role::HeadDenseBias, true);
    if (!pooler.dense && !pool) return std::nullopt;  // optional, and the checkpoint has none
  }
  return pooler;
}

Output Builder::output(const Context& context, const Node& section, const std::string& path, int64_t width) {
  Scope scope = context.scope;
  if (const Node* at = section.get("at")) binder_.enter(*at, scope);
  Output output;
  output.norm = norm(context, &section, scope, path + "output.norm", width);
  const ParamRequest projection{.role = Role::HeadDenseWeight,
                                .path = path + "output.projection",
                                .shape = {context.sizes.embedding, context.sizes.hidden}};
  output.projection = linear(context, section.get("projection"), nullptr, scope, projection, Role::HeadDenseBias, true);
  if (const Node* states = section.get("states"))
    output.raw_states = parse_keyword(*states, scope.variables, states_words) == "raw";
  if (const Node* node = section.get("pooler")) output.pooler = pooler(context, *node, scope, path + "output.pooler");
  output.queries = output_queries(context, section, scope, path + "output.queries");
  return output;
}

std::optional<Stack> Builder::stack(const std::string& name, const Node& section) {
  if (!section.is_map()) refuse_policy(section, "the stack \"" + name + "\" has to be a map");
  const Context context = this->context(name, section);
  if (const Node* when = section.get("when"); when && !evaluate_bool(*when, context.scope.variables))
    return std::nullopt;
  contexts_[name] = context;
  Stack stack;
  stack.name = name;
  stack.hidden = context.sizes.hidden;
  stack.vocab = context.sizes.vocab;
  stack.positions = context.sizes.positions;
  const std::string path = name + ".";
  if (const std::optional<Scope> module = mtp_scope(context)) binder_.leave_out(module->prefix + module->at);
  stack.joins = joins(context);
  if (const Node* node = section.get("input")) stack.input = input(context, *node, path);
  for (int64_t l = 0; l < context.sizes.layers; ++l) {
    const Layer& made = stack.layers.emplace_back(layer(context, l, path + "layers." + std::to_string(l)));
    if (made.cross) expect_alike(section, stack.layers.front().attention, *made.cross);
    if (!made.co_attention) continue;
    expect_alike(section, stack.layers.front().attention, made.co_attention->across);
    expect_alike(section, stack.layers.front().attention, made.co_attention->attention);
  }
  set_layouts(section, stack);
  add_positions(stack);
  stack.memory = memory(context);
  set_queries_apart(stack);
  pad_to_chunks(stack);
  set_input_ranges(section, stack);
  if (const Node* node = section.get("output")) stack.output = output(context, *node, path, stack.width());
  return stack;
}

}  // namespace pm::policy
