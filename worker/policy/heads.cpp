// SPDX-License-Identifier: Apache-2.0
// Builder: task heads.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/keywords.h"

namespace pm::policy {

namespace {

/// The maximum number of rows or columns of a table.
constexpr int64_t most_cells = 4096;
/// The maximum number of first tokens of an answer, and of last tokens for each.
constexpr int64_t most_spans = 1024;

/// The two heads of `between` or `mean`; the grammar lets neither have more or fewer.
std::array<std::string, 2> two_of(const Node& list) { return {list.items[0].text, list.items[1].text}; }

[[noreturn]] void unreadable(const std::string& message) { throw Error(Reason::ModelUnreadable, message); }

}  // namespace

std::optional<Pool> Builder::pool(HeadScope& at, const Stack* read, const std::string& name) {
  const Node* node = at.section.get("pool");
  if (!node) return std::nullopt;
  const Pool pool = parse_enum<Pool>(*node, at.scope.variables);
  if (pool != Pool::Pooler || binder_.is_dry_run()) return pool;
  const Pooler* pooler = read && read->output.pooler ? &*read->output.pooler : nullptr;
  if (!pooler)
    binder_.add_problem(at.section, "the head \"" + name + "\" reads the pooler of the stack \"" +
                                        at.context.scope.stack + "\", and the checkpoint has none");
  else if (pooler->dense && !pooler->dense->weight.shape.empty())
    at.width = pooler->dense->weight.shape[0];
  return pool;
}

std::optional<Param> Builder::layer_weights(const HeadScope& at, const Stack* read) {
  const std::optional<Binding> row = binder_.binding(at.section.get("layer_weights"), at.scope.variables);
  if (!row || !row->names()) return std::nullopt;
  const int64_t states = read ? static_cast<int64_t>(read->layers.size()) + 1 : -1;
  return binder_.bind({.role = Role::LayerWeights, .path = at.path + ".layer_weights", .shape = {states}},
                      binder_.names(*row->names(), at.scope, ".weight"), *row, at.scope);
}

HeadTransform Builder::transform(HeadScope& at) {
  HeadTransform transform;
  transform.dense = linear(at.context, at.section.get("dense"), nullptr, at.scope,
                           {.role = Role::HeadDenseWeight, .path = at.path + ".dense", .shape = {-1, at.width}},
                           Role::HeadDenseBias, true);
  if (transform.dense && !transform.dense->weight.shape.empty()) at.width = transform.dense->weight.shape[0];
  if (const Node* act = given(at.section.get("act"), at.scope.variables))
    transform.activation = activation(act, at.scope.variables);
  transform.norm = norm(at.context, &at.section, at.scope, at.path + ".norm", at.width);
  const Node* logits = at.section.get("logits");
  const Node* scale = logits && logits->get("scale_input") ? logits->get("scale_input") : at.section.get("scale_input");
  if (scale) transform.scale = evaluate_number(*scale, at.scope.variables);
  return transform;
}

/// Builds the columns of the scores' matrix that lie behind those of the token embedding.
std::optional<Param> Builder::concat(const HeadScope& at) {
  const Node* logits = at.section.get("logits");
  const std::optional<Binding> row =
      binder_.binding(logits && logits->is_map() ? logits->get("concat") : nullptr, at.scope.variables);
  if (!row || !row->names()) return std::nullopt;
  const Sizes& sizes = at.context.sizes;
  if (sizes.embedding >= at.width)
    unreadable(row->node->where() + ": config.json gives an embedding of " + std::to_string(sizes.embedding) +
               " and states of " + std::to_string(at.width) + "; further columns need wider states");
  const Node* layout = row->option("layout");
  const ParamRequest request{.role = Role::LogitsWeight,
                             .path = at.path + ".logits.concat",
                             .shape = {sizes.vocab, at.width - sizes.embedding},
                             .units = sizes.vocab,
                             .conv1d = layout && parse_keyword(*layout, at.scope.variables, layout_words) == "conv1d"};
  return binder_.bind(request, binder_.names(*row->names(), at.scope, ".weight"), *row, at.scope).value_or(Param{});
}

ClassesSpec Builder::classes(HeadScope& at, const std::optional<Pool>& pool, HeadTransform transform) {
  const Node* section = at.section.get("classes");
  const Node* vector = section ? section->get("vector") : nullptr;
  ClassesSpec classes{.pool = pool, .mlp = {}, .transform = std::move(transform), .linear = {}};
  if (const Node* block = at.section.get("mlp")) {
    Scope scope = at.scope;
    if (const Node* inside = block->get("at")) binder_.enter(*inside, scope);
    classes.mlp = mlp(at.context, *block, scope, at.path + ".mlp");
  }
  if (const Node* mask = at.section.get("mask_question"))
    classes.mask_question = evaluate_bool(*mask, at.scope.variables);
  classes.vector = vector && evaluate_bool(*vector, at.scope.variables);
  if (const Node* node = section ? section->get("divisor") : nullptr)
    classes.divisor = evaluate_number(*node, at.scope.variables);
  if (!(classes.divisor > 0))
    unreadable(section->where() + ": config.json gives scores the divisor " + std::to_string(classes.divisor) +
               ", expected a number above 0");
  if (const Node* node = section ? section->get("per_pixel") : nullptr)
    classes.per_pixel = evaluate_bool(*node, at.scope.variables);
  const std::vector<int64_t> shape =
      classes.vector ? std::vector<int64_t>{at.width} : std::vector<int64_t>{-1, at.width};
  classes.linear =
      linear(at.context, section, nullptr, at.scope,
             {.role = Role::ClassWeight, .path = at.path + ".classes", .shape = shape}, Role::ClassBias, true);
  return classes;
}

CellsSpec Builder::cells(HeadScope& at, ClassesSpec tokens) {
  const Node& section = *at.section.get("cells");
  if (!tokens.vector || !tokens.linear || tokens.pool)
    refuse_architecture(model_, "has cells without one score per token, or without their columns and rows");
  if (!section.get("columns")) refuse_policy(section, "cells need \"columns\"");
  CellsSpec cells{.transform = std::move(tokens.transform), .tokens = std::move(*tokens.linear), .columns = {}};
  const ParamRequest request{.role = Role::ClassWeight, .path = at.path + ".columns", .shape = {at.width}};
  if (auto made = linear(at.context, section.get("columns"), nullptr, at.scope, request, Role::ClassBias, true))
    cells.columns = std::move(*made);
  if (const Node* node = section.get("temperature")) cells.temperature = evaluate_number(*node, at.scope.variables);
  if (!(cells.temperature > 0))
    unreadable(section.where() + ": config.json gives the temperature " + std::to_string(cells.temperature) +
               ", expected a number above 0");
  for (auto [key, size] : {std::pair{"max_rows", &cells.rows}, {"max_columns", &cells.across}}) {
    if (const Node* node = section.get(key)) *size = evaluate_int(*node, at.scope.variables);
    if (*size < 1 || *size > most_cells)
      unreadable(section.where() + ": config.json gives tables " + key + " = " + std::to_string(*size) +
                 ", expected 1 to " + std::to_string(most_cells));
  }
  if (const Node* node = section.get("allow_empty_column")) cells.empty = evaluate_bool(*node, at.scope.variables);
  return cells;
}

SpansSpec Builder::spans(const HeadScope& at) {
  const Node& section = *at.section.get("spans");
  Scope scope = at.scope;
  if (const Node* node = section.get("at")) binder_.enter(*node, scope);
  SpansSpec spans;
  const auto row = [&](const char* key, int64_t out, int64_t in, Linear& target) {
    if (!section.get(key)) refuse_policy(section, std::string("spans need \"") + key + "\"");
    const bool dense = out > 1;
    const ParamRequest request{
        .role = dense ? Role::HeadDenseWeight : Role::ClassWeight, .path = at.path + "." + key, .shape = {out, in}};
    if (auto made = linear(at.context, section.get(key), nullptr, scope, request,
                           dense ? Role::HeadDenseBias : Role::ClassBias, true))
      target = std::move(*made);
  };
  row("start", 1, at.width, spans.start);
  row("end_dense", at.width, 2 * at.width, spans.end_dense);
  spans.end_norm = norm(at.context, &section, scope, at.path + ".end_norm", at.width, "end_norm");
  row("end", 1, at.width, spans.end);
  row("answer_dense", at.width, 2 * at.width, spans.answer_dense);
  row("answer", 1, at.width, spans.answer);
  for (auto [key, count] : {std::pair{"start_n_top", &spans.starts}, {"end_n_top", &spans.ends}}) {
    if (const Node* node = section.get(key)) *count = evaluate_int(*node, scope.variables);
    if (*count < 1 || *count > most_spans)
      unreadable(section.where() + ": config.json gives " + key + " = " + std::to_string(*count) + ", expected 1 to " +
                 std::to_string(most_spans));
  }
  return spans;
}

PairsSpec Builder::pairs(const HeadScope& at) {
  const Node& section = *at.section.get("pairs");
  const Node* chosen = section.get("positions");
  if (!section.get("query") || !section.get("key") || !chosen)
    refuse_policy(section, "pairs need \"query\", \"key\" and \"positions\"");
  PairsSpec pairs{.query = {}, .key = {}, .chosen = chosen->text};
  const ParamRequest query{.role = Role::HeadDenseWeight, .path = at.path + ".query", .shape = {-1, at.width}};
  if (auto made = linear(at.context, section.get("query"), nullptr, at.scope, query, Role::HeadDenseBias, true))
    pairs.query = std::move(*made);
  const bool known = !pairs.query.weight.shape.empty();
  const ParamRequest key{.role = Role::HeadDenseWeight,
                         .path = at.path + ".key",
                         .shape = {known ? pairs.query.weight.shape[0] : -1, at.width}};
  if (auto made = linear(at.context, section.get("key"), nullptr, at.scope, key, Role::HeadDenseBias, true))
    pairs.key = std::move(*made);
  return pairs;
}

SimilaritySpec Builder::similarity(const HeadScope& at) {
  SimilaritySpec similarity{.between = two_of(*at.section.get("between")), .scalar = {}};
  if (const std::optional<Binding> row = binder_.binding(at.section.get("logit_scale"), at.scope.variables);
      row && row->names()) {
    similarity.scalar = binder_.bind({.role = Role::Scalar, .path = at.path + ".scalar"},
                                     binder_.names(*row->names(), at.scope, ".weight"), *row, at.scope);
  }
  return similarity;
}

Head Builder::head(const std::string& name, const Node& section, const std::string& default_stack) {
  Head head;
  head.name = name;
  head.stack = section.get("stack") ? section.get("stack")->text : default_stack;
  auto found = contexts_.find(head.stack);
  if (found == contexts_.end())
    refuse_policy(section, "the head \"" + name + "\" reads the stack \"" + head.stack +
                               "\", which this architecture does not have");
  const Stack* read = model_.stack(head.stack);
  const Sizes& sizes = found->second.sizes;
  HeadScope at{.context = found->second,
               .section = section,
               .scope = found->second.scope,
               .path = "heads." + name,
               .width = !read                     ? sizes.hidden
                        : read->output.queries    ? read->output.queries->width
                        : read->output.projection ? sizes.embedding
                                                  : read->width()};
  at.scope.prefix.clear();
  at.scope.stack.clear();
  if (const Node* node = section.get("at")) binder_.enter(*node, at.scope);
  const Node* output = section.get("output");
  if (output) head.outputs = texts_of(output);
  if (section.get("between")) {
    head.kind = similarity(at);
    return head;
  }
  if (const Node* two = section.get("mean")) {
    head.kind = MeanSpec{two_of(*two)};
    return head;
  }
  head.layer_weights = layer_weights(at, read);
  if (section.get("time_delay") || section.get("codebook")) {
    if (section.get("time_delay"))
      head.kind = time_delay(at);
    else
      head.kind = codebook(at, sizes.embedding);
    const size_t wanted = section.get("time_delay") ? 2 : 3;
    if (head.outputs.size() != wanted)
      refuse_policy(section, "the head \"" + name + "\" has " + std::to_string(wanted) + " outputs");
    return head;
  }
  if (section.get("score_clusters")) {
    head.kind = score_clusters(at);
    if (head.outputs.size() != 1) refuse_policy(section, "a head with \"score_clusters\" has one output");
    return head;
  }
  for (const auto& [key, name_of_output] :
       {std::pair{"boxes", "pred_boxes"}, {"masks", "pred_masks"}, {"pixel_shuffle", "reconstruction"}}) {
    const std::string_view kind = key;
    if (!section.get(kind)) continue;
    if (kind == "boxes")
      head.kind = boxes(at);
    else if (kind == "masks")
      head.kind = masks(at, read);
    else
      head.kind = pixel_shuffle(at);
    if (!output) head.outputs = {name_of_output};
    if (head.outputs.size() != 1) refuse_policy(section, "a head with \"" + std::string(kind) + "\" has one output");
    return head;
  }
  const std::optional<Pool> pool = this->pool(at, read, name);
  if (const Node* node = section.get("entities")) {
    head.entities = parse_enum<EntityStates>(*node, at.scope.variables);
    if (!binder_.is_dry_run() && (pool || !read || !read->input.entities))
      refuse_policy(*node, "a head reads states of entities without \"pool\", of a stack that has entities");
    at.width *= head.entities == EntityStates::Span ? 3 : head.entities == EntityStates::Pair ? 2 : 1;
  }
  const bool of_entities = head.entities && read && read->input.entities && !read->input.entities->table.shape.empty();
  const int64_t vocabulary = of_entities ? read->input.entities->table.shape[0] : sizes.vocab;
  if (section.get("spans") || section.get("pairs")) {
    if (pool) refuse_architecture(model_, "has pairs or spans of pooled states");
    if (section.get("pairs")) {
      head.kind = pairs(at);
      return head;
    }
    head.kind = spans(at);
    if (!output)
      head.outputs = {"start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"};
    if (head.outputs.size() != 5) refuse_policy(section, "a head with \"spans\" has five outputs");
    return head;
  }
  if (const Node* node = section.get("streams")) head.streams = evaluate_bool(*node, at.scope.variables);
  if (head.streams && !binder_.is_dry_run() &&
      (pool || head.layer_weights || !read || !read->input.streams || head.outputs.size() != 2))
    refuse_policy(*section.get("streams"),
                  "a head of streams has two outputs and reads every token's last state of a stack with streams");
  HeadTransform before = transform(at);
  std::optional<Param> others = concat(at);
  const ParamRequest rows{.role = Role::LogitsWeight,
                          .path = at.path + ".logits",
                          .shape = {vocabulary, others ? sizes.embedding : at.width},
                          .units = vocabulary};
  if (auto logits = linear(at.context, section.get("logits"), nullptr, at.scope, rows, Role::LogitsBias, true)) {
    const Node* softcap = section.get("softcap");
    head.kind = LogitsSpec{.pool = pool,
                           .transform = std::move(before),
                           .linear = std::move(*logits),
                           .concat = std::move(others),
                           .softcap = softcap ? evaluate_number(*softcap, at.scope.variables) : 0};
    return head;
  }
  ClassesSpec scores = classes(at, pool, std::move(before));
  if (section.get("cells"))
    head.kind = cells(at, std::move(scores));
  else
    head.kind = std::move(scores);
  return head;
}

}  // namespace pm::policy
