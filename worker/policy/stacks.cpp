// See builder.h: stacks with their inputs and outputs.
#include <algorithm>

#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/words.h"

namespace pm::policy {

namespace {

/// More layers than any model has: a bound for loops over a hostile config.json.
constexpr int64_t most_layers = 4096;
/// Of numbers per token that tables look up.
constexpr int64_t most_columns = 64;

[[noreturn]] void unreadable(const std::string& message) { throw Error(ErrorKind::Model, "ModelUnreadable", message); }

/// Refuses an attention whose heads are not dealt as the stack's first layer's are: facts have one head size and one group size per stack.
void expect_alike(const Node& section, const Attention& first, const Attention& other) {
  const int64_t wanted = first.heads / first.kv_heads, found = other.heads / other.kv_heads;
  if (other.head_dim == first.head_dim && found == wanted) return;
  unreadable(section.where() + ": the stack's first attention has " + std::to_string(wanted) + " heads of size " + std::to_string(first.head_dim) +
             " per kv head, another of its attentions " + std::to_string(found) + " of size " + std::to_string(other.head_dim) + "; expected the same throughout a stack");
}

}  // namespace

std::string IndexTable::key() const {
  if (column < 0) return input;
  return input + "." + std::to_string(column) + (minus < 0 ? "" : "-" + std::to_string(minus));
}

Scope Builder::scope() const { return {&checkpoint_.config(), {policy_.get("let")}, std::nullopt}; }

Sizes Builder::sizes(const Node& section, const Scope& scope) {
  auto value = [&](const char* name, int64_t usual) {
    for (const Node* lets : scope.lets) {
      const Node* node = lets ? lets->get(name) : nullptr;
      if (!node) continue;
      const int64_t found = evaluate_int(*node, scope);
      if (found < 0) unreadable(node->where() + ": config.json gives " + name + " = " + std::to_string(found));
      return found;
    }
    return usual;
  };
  Sizes sizes;
  sizes.layers = value("layers", 0);
  if (sizes.layers < 1 || sizes.layers > most_layers) unreadable(section.where() + ": config.json gives " + std::to_string(sizes.layers) + " layers, expected 1 to 4096");
  sizes.hidden = value("hidden", 0);
  sizes.heads = value("heads", 0);
  if (sizes.hidden < 1 || sizes.heads < 1) unreadable(section.where() + ": config.json gives hidden " + std::to_string(sizes.hidden) + " and " + std::to_string(sizes.heads) + " heads");
  sizes.kv_heads = value("kv_heads", sizes.heads);
  sizes.head_dim = value("head_dim", sizes.hidden / sizes.heads);
  sizes.embedding = value("embedding", sizes.hidden);
  sizes.ffn = value("ffn", 0);
  sizes.vocab = value("vocab", 0);
  sizes.positions = value("positions", 0);
  // products of two of them have to stay below 2^63
  for (int64_t size : {sizes.hidden, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.embedding, sizes.ffn, sizes.vocab, sizes.positions}) {
    if (size > (int64_t{1} << 30)) unreadable(section.where() + ": config.json gives a size of " + std::to_string(size) + ", at most 2^30 are served");
  }
  return sizes;
}

Builder::Context Builder::context(const std::string& name, const Node& section) {
  Node values = section;   // the stack's own `let` and sizes in one map
  values.kind = Node::Kind::Map;
  values.entries.clear();
  if (const Node* let = section.get("let")) values.entries = let->entries;
  for (const auto& [key, value] : section.entries)
    if (std::find(size_words.begin(), size_words.end(), key.text) != size_words.end()) values.entries.emplace_back(key, value);
  lets_.push_back(std::move(values));
  Context context;
  context.section = &section;
  context.layer = section.get("layer");
  context.place.stack = name;
  context.place.scope = {&checkpoint_.config(), {&lets_.back(), policy_.get("let")}, std::nullopt};
  // head_dim of the defaults is a name that expressions may use
  context.sizes = sizes(section, context.place.scope);
  for (auto [key, size] : {std::pair{"head_dim", context.sizes.head_dim}, {"kv_heads", context.sizes.kv_heads}, {"embedding", context.sizes.embedding}}) {
    if (lets_.back().get(key) || (policy_.get("let") && policy_.get("let")->get(key))) continue;
    Node word = section, number = section;
    word.kind = number.kind = Node::Kind::Scalar;
    word.text = key;
    number.text = std::to_string(size);
    lets_.back().entries.emplace_back(word, number);
  }
  context.place.prefix = binder_.prefix(section.get("prefix"), context.place.scope);
  return context;
}

void Builder::position(const Context& context, const Node& section, const Place& place, const std::string& path, Input& input) {
  const Node* node = section.get("position");
  if (!node) return;
  if (!node->is_map()) {
    word_of(*node, place.scope, position_words);   // none
    return;
  }
  const Node *learned = node->get("learned"), *sinusoidal = node->get("sinusoidal");
  if (!learned == !sinusoidal) refuse_policy(*node, "a position that is a map needs \"learned\" or \"sinusoidal\"");
  if (const Node* offset = node->get("offset")) {
    input.position_offset = evaluate_int(*offset, place.scope);
    if (input.position_offset < 0) unreadable(offset->where() + ": the offset of positions is " + std::to_string(input.position_offset) + " with this config.json");
  }
  if (const Node* kept = node->get("kept")) input.position_kept = evaluate_bool(*kept, place.scope);
  if (const Node* cells = node->get("cells")) input.position_cells = evaluate_bool(*cells, place.scope);
  const Node *given = node->get("given"), *last = node->get("last");
  input.position_given_rows = given ? word_of(*given, place.scope, given_words) == "rows" : input.position_kept;
  input.position_last = last && evaluate_bool(*last, place.scope);
  const int64_t width = input.position_last ? context.sizes.hidden : context.sizes.embedding;
  if (sinusoidal) {
    if (width % 2 || width < 4) unreadable(node->where() + ": sinusoidal positions need an even width of at least 4, config.json gives " + std::to_string(width));
    input.position = word_of(*sinusoidal, place.scope, sinusoid_words) == "paper" ? PositionKind::Paper : PositionKind::Tensor2Tensor;
    return;
  }
  const std::optional<Row> row = binder_.row(learned, place.scope);
  if (!row || !row->names()) return;
  const Node* rows = node->get("rows");
  const int64_t count = rows ? evaluate_int(*rows, place.scope) : context.sizes.positions + input.position_offset;
  const Ask ask{.role = Role::PositionEmbedding, .path = path + "positions", .shape = {count, width}, .units = count};
  input.position = PositionKind::Learned;
  input.positions = binder_.bind(ask, binder_.names(*row->names(), place, ".weight"), *row, place);
}

void Builder::tables(const Context& context, const Node& section, const Place& place, const std::string& path, std::vector<IndexTable>& tables) {
  const Node* list = section.get("tables");
  if (!list) return;
  for (const Node& item : list->items) {
    const std::optional<Row> row = binder_.row(&item, place.scope);
    if (!row) continue;
    const Node *kind = item.get("input"), *rows = item.get("rows");
    if (!kind || !rows || !row->names()) refuse_policy(item, "a table needs \"from\", \"input\" and \"rows\"");
    IndexTable table{.table = {}, .input = kind->text};
    for (auto [key, number] : {std::pair{"column", &table.column}, {"minus", &table.minus}}) {
      const Node* node = item.get(key);
      if (!node) continue;
      *number = evaluate_int(*node, place.scope);
      if (*number < 0 || *number >= most_columns) refuse_policy(*node, std::string(key) + " is " + std::to_string(*number) + ", expected 0 to " + std::to_string(most_columns - 1));
    }
    if (table.minus >= 0 && table.column < 0) refuse_policy(item, "\"minus\" needs \"column\"");
    if (const Node* given = item.get("given")) table.given = evaluate_bool(*given, place.scope);
    const int64_t count = evaluate_int(*rows, place.scope);
    if (const Node* usual = item.get("usual")) table.usual = evaluate_int(*usual, place.scope);
    if (table.usual < 0 || (table.usual > 0 && table.usual >= count)) unreadable(item.where() + ": the usual row is " + std::to_string(table.usual) + ", the table has " + std::to_string(count));
    const Ask ask{.role = Role::IndexTable, .path = path + "tables." + table.key(), .shape = {count, context.sizes.embedding}};
    const std::optional<Param> bound = binder_.bind(ask, binder_.names(*row->names(), place, ".weight"), *row, place);
    if (!bound) continue;
    table.table = *bound;
    tables.push_back(std::move(table));
  }
}

std::optional<Features> Builder::features(const Context& context, const Node& section, const Place& place, const std::string& path) {
  const Node* node = section.get("features");
  if (!binder_.row(node, place.scope)) return std::nullopt;
  const Node *input = node->get("input"), *mask = node->get("mask"), *align = node->get("align");
  if (!node->get("from") || !input || !mask) refuse_policy(*node, "features need \"from\", \"input\" and \"mask\"");
  Features features{.projection = {}, .input = input->text, .mask = mask->text, .positions = {}, .align = align ? align->text : "", .tables = {}};
  const Ask ask{.role = Role::EmbeddingProjection, .path = path, .shape = {context.sizes.embedding, -1}};
  if (auto made = linear(context, node, nullptr, place, ask, Role::HeadDenseBias, true)) features.projection = std::move(*made);
  if (const std::optional<Row> row = binder_.row(node->get("position"), place.scope); row && row->names()) {
    const int64_t rows = context.sizes.positions;
    const Ask table{.role = Role::PositionEmbedding, .path = path + ".positions", .shape = {rows, context.sizes.embedding}, .units = rows};
    features.positions = binder_.bind(table, binder_.names(*row->names(), place, ".weight"), *row, place);
  }
  tables(context, *node, place, path + ".", features.tables);
  return features;
}

Input Builder::input(const Context& context, const Node& section, const std::string& path) {
  const Sizes& sizes = context.sizes;
  Place place = context.place;
  if (const Node* at = section.get("at")) binder_.go_to(*at, place);
  Input input;
  if (const std::optional<Row> row = binder_.row(section.get("token"), place.scope)) {
    const Ask ask{.role = Role::TokenEmbedding, .path = path + "token", .shape = {sizes.vocab, sizes.embedding}, .units = sizes.vocab};
    input.token = binder_.bind(ask, row->names() ? binder_.names(*row->names(), place, ".weight") : std::vector<std::string>{}, *row, place);
  }
  if (const Node* scale = section.get("scale")) input.scale = evaluate_number(*scale, place.scope);
  position(context, section, place, path, input);
  tables(context, section, place, path, input.tables);
  input.features = features(context, section, place, path + "features");
  const Ask projection{.role = Role::EmbeddingProjection, .path = path + "projection", .shape = {sizes.hidden, sizes.embedding}};
  input.projection = linear(context, section.get("projection"), nullptr, place, projection, Role::HeadDenseBias, true);
  if (const Node* patches = section.get("patches"); patches && !input.projection) {
    const Node *channels = patches->get("channels"), *size = patches->get("size");
    if (!channels || !size) refuse_policy(*patches, "patches need \"channels\" and \"size\"");
    const int64_t side = evaluate_int(*size, place.scope);
    const Ask ask{.role = Role::PatchProjection, .path = path + "patches", .shape = {sizes.hidden, evaluate_int(*channels, place.scope), side, side}};
    input.projection = linear(context, patches, nullptr, place, ask, Role::HeadDenseBias, true);
  }
  for (auto [key, token] : {std::pair{"class_token", &input.class_token}, {"distillation_token", &input.distillation_token}}) {
    const std::optional<Row> row = binder_.row(section.get(key), place.scope);
    if (!row || !row->names()) continue;
    const Ask ask{.role = Role::ExtraToken, .path = path + key, .shape = {sizes.hidden}};
    *token = binder_.bind(ask, binder_.names(*row->names(), place, ".weight"), *row, place);
  }
  input.norm = norm(context, &section, place, path + "norm", sizes.embedding);
  return input;
}

std::optional<Pooler> Builder::pooler(const Context& context, const Node& section, const Place& place, const std::string& path) {
  const Node* when = section.get("when");
  if (when && !evaluate_bool(*when, place.scope)) return std::nullopt;
  Pooler pooler;
  if (const Node* pool = section.get("pool")) pooler.pool = word_of(*pool, place.scope, pooler_words);
  if (const Node* act = section.get("act")) pooler.activation = activation(act, place.scope);
  pooler.norm = norm(context, &section, place, path + ".norm", context.sizes.hidden);
  if (section.get("from")) {
    const Ask ask{.role = Role::HeadDenseWeight, .path = path, .shape = {-1, context.sizes.hidden}};
    pooler.dense = linear(context, &section, nullptr, place, ask, Role::HeadDenseBias, true);
    if (!pooler.dense && !section.get("pool")) return std::nullopt;   // optional, and the checkpoint has none
  }
  return pooler;
}

Output Builder::output(const Context& context, const Node& section, const std::string& path) {
  Place place = context.place;
  if (const Node* at = section.get("at")) binder_.go_to(*at, place);
  Output output;
  output.norm = norm(context, &section, place, path + "output.norm", context.sizes.hidden);
  const Ask projection{.role = Role::HeadDenseWeight, .path = path + "output.projection", .shape = {context.sizes.embedding, context.sizes.hidden}};
  output.projection = linear(context, section.get("projection"), nullptr, place, projection, Role::HeadDenseBias, true);
  if (const Node* states = section.get("states")) output.raw_states = word_of(*states, place.scope, states_words) == "raw";
  if (const Node* node = section.get("pooler")) output.pooler = pooler(context, *node, place, path + "output.pooler");
  return output;
}

std::optional<Stack> Builder::stack(const std::string& name, const Node& section) {
  if (!section.is_map()) refuse_policy(section, "the stack \"" + name + "\" has to be a map");
  const Context context = this->context(name, section);
  if (const Node* when = section.get("when"); when && !evaluate_bool(*when, context.place.scope)) return std::nullopt;
  contexts_[name] = context;
  Stack stack;
  stack.name = name;
  stack.hidden = context.sizes.hidden;
  stack.vocab = context.sizes.vocab;
  stack.positions = context.sizes.positions;
  const std::string path = name + ".";
  if (const Node* node = section.get("input")) stack.input = input(context, *node, path);
  for (int64_t l = 0; l < context.sizes.layers; ++l) {
    const Layer& made = stack.layers.emplace_back(layer(context, l, path + "layers." + std::to_string(l)));
    expect_alike(section, stack.layers.front().attention, made.attention);
    if (made.cross) expect_alike(section, stack.layers.front().attention, *made.cross);
  }
  if (const Node* node = section.get("output")) stack.output = output(context, *node, path);
  return stack;
}

}  // namespace pm::policy
