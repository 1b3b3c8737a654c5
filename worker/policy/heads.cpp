// See builder.h: heads.
#include "worker/base/error.h"
#include "worker/policy/builder.h"
#include "worker/policy/words.h"

namespace pm::policy {

namespace {

/// Of a table to one side.
constexpr int64_t most_cells = 4096;
/// Of first tokens of an answer, and of last ones.
constexpr int64_t most_spans = 1024;

[[noreturn]] void unreadable(const std::string& message) { throw Error(ErrorKind::Model, "ModelUnreadable", message); }

}  // namespace

Cells Builder::cells(const Context& context, const Node& section, const Place& place, const std::string& path, int64_t width) {
  if (!section.get("columns")) refuse_policy(section, "cells need \"columns\"");
  Cells cells;
  const Ask ask{.role = Role::ClassWeight, .path = path + ".columns", .shape = {width}};
  if (auto made = linear(context, section.get("columns"), nullptr, place, ask, Role::ClassBias, true)) cells.columns = std::move(*made);
  if (const Node* node = section.get("temperature")) cells.temperature = evaluate_number(*node, place.scope);
  if (!(cells.temperature > 0)) unreadable(section.where() + ": config.json gives the temperature " + std::to_string(cells.temperature) + ", expected a number above 0");
  for (auto [key, size] : {std::pair{"rows", &cells.rows}, {"across", &cells.across}}) {
    if (const Node* node = section.get(key)) *size = evaluate_int(*node, place.scope);
    if (*size < 1 || *size > most_cells) unreadable(section.where() + ": config.json gives tables " + key + " = " + std::to_string(*size) + ", expected 1 to " + std::to_string(most_cells));
  }
  if (const Node* node = section.get("empty")) cells.empty = evaluate_bool(*node, place.scope);
  return cells;
}

Spans Builder::spans(const Context& context, const Node& section, const Place& at, const std::string& path, int64_t width) {
  Place place = at;
  if (const Node* node = section.get("at")) binder_.go_to(*node, place);
  Spans spans;
  const auto row = [&](const char* key, const std::string& name, int64_t out, int64_t in, Linear& target) {
    if (!section.get(key)) refuse_policy(section, std::string("spans need \"") + key + "\"");
    const bool dense = out > 1;
    const Ask ask{.role = dense ? Role::HeadDenseWeight : Role::ClassWeight, .path = path + name, .shape = {out, in}};
    if (auto made = linear(context, section.get(key), nullptr, place, ask, dense ? Role::HeadDenseBias : Role::ClassBias, true)) target = std::move(*made);
  };
  row("start", ".start", 1, width, spans.start);
  row("end_dense", ".end_dense", width, 2 * width, spans.end_dense);
  spans.end_norm = norm(context, &section, place, path + ".end_norm", width, "end_norm");
  row("end", ".end", 1, width, spans.end);
  row("answer_dense", ".answer_dense", width, 2 * width, spans.answer_dense);
  row("answer", ".answer", 1, width, spans.answer);
  for (auto [key, count] : {std::pair{"starts", &spans.starts}, {"ends", &spans.ends}}) {
    if (const Node* node = section.get(key)) *count = evaluate_int(*node, place.scope);
    if (*count < 1 || *count > most_spans) unreadable(section.where() + ": config.json gives " + key + " = " + std::to_string(*count) + ", expected 1 to " + std::to_string(most_spans));
  }
  return spans;
}

Pairs Builder::pairs(const Context& context, const Node& section, const Place& place, const std::string& path, int64_t width) {
  const Node* chosen = section.get("chosen");
  if (!section.get("query") || !section.get("key") || !chosen) refuse_policy(section, "pairs need \"query\", \"key\" and \"chosen\"");
  Pairs pairs{.query = {}, .key = {}, .chosen = chosen->text};
  const Ask query{.role = Role::HeadDenseWeight, .path = path + ".query", .shape = {-1, width}};
  if (auto made = linear(context, section.get("query"), nullptr, place, query, Role::HeadDenseBias, true)) pairs.query = std::move(*made);
  const bool known = !pairs.query.weight.shape.empty();
  const Ask key{.role = Role::HeadDenseWeight, .path = path + ".key", .shape = {known ? pairs.query.weight.shape[0] : -1, width}};
  if (auto made = linear(context, section.get("key"), nullptr, place, key, Role::HeadDenseBias, true)) pairs.key = std::move(*made);
  return pairs;
}

Head Builder::head(const std::string& name, const Node& section, const std::string& default_stack) {
  Head head;
  head.name = name;
  head.stack = section.get("stack") ? section.get("stack")->text : default_stack;
  auto found = contexts_.find(head.stack);
  if (found == contexts_.end()) refuse_policy(section, "the head \"" + name + "\" reads the stack \"" + head.stack + "\", which this architecture does not have");
  const Context& context = found->second;
  Place place = context.place;
  place.prefix.clear();
  place.stack.clear();
  if (const Node* at = section.get("at")) binder_.go_to(*at, place);
  if (const Node* pool = section.get("pool")) head.pool = word_of(*pool, place.scope, pool_words);
  if (const Node* output = section.get("output")) head.outputs = texts_of(output);
  head.between = texts_of(section.get("between"));
  head.mean = texts_of(section.get("mean"));
  const std::string path = "heads." + name;
  const Stack* read = model_.stack(head.stack);
  int64_t width = read && read->output.projection ? context.sizes.embedding : context.sizes.hidden;
  if (head.pool == "pooler" && !binder_.rehearsing()) {
    const Pooler* pooler = read && read->output.pooler ? &*read->output.pooler : nullptr;
    if (!pooler) binder_.complain(section, "the head \"" + name + "\" reads the pooler of the stack \"" + head.stack + "\", and the checkpoint has none");
    else if (pooler->dense && !pooler->dense->weight.shape.empty()) width = pooler->dense->weight.shape[0];
  }
  head.dense = linear(context, section.get("dense"), nullptr, place, {.role = Role::HeadDenseWeight, .path = path + ".dense", .shape = {-1, width}}, Role::HeadDenseBias, true);
  if (head.dense && !head.dense->weight.shape.empty()) width = head.dense->weight.shape[0];
  if (section.get("act")) head.activation = activation(section.get("act"), place.scope);
  head.norm = norm(context, &section, place, path + ".norm", width);
  const Node* logits = section.get("logits");
  const Node* scale = logits && logits->get("scale_input") ? logits->get("scale_input") : section.get("scale_input");
  if (scale) head.scale_input = evaluate_number(*scale, place.scope);
  if (const Node* softcap = section.get("softcap")) head.softcap = evaluate_number(*softcap, place.scope);
  const Ask rows{.role = Role::LogitsWeight, .path = path + ".logits", .shape = {context.sizes.vocab, width}, .units = context.sizes.vocab};
  head.logits = linear(context, logits, nullptr, place, rows, Role::LogitsBias, true);
  const Node* classes = section.get("classes");
  const Node* vector = classes ? classes->get("vector") : nullptr;
  head.vector = vector && evaluate_bool(*vector, place.scope);
  const std::vector<int64_t> shape = head.vector ? std::vector<int64_t>{width} : std::vector<int64_t>{-1, width};
  head.classes = linear(context, classes, nullptr, place, {.role = Role::ClassWeight, .path = path + ".classes", .shape = shape}, Role::ClassBias, true);
  if (const Node* node = section.get("cells")) head.cells = cells(context, *node, place, path, width);
  if (const Node* node = section.get("spans")) {
    head.spans = spans(context, *node, place, path, width);
    if (!section.get("output")) head.outputs = {"start_top_log_probs", "start_top_index", "end_top_log_probs", "end_top_index", "cls_logits"};
    if (head.outputs.size() != 5) refuse_policy(section, "a head with \"spans\" has five outputs");
  }
  if (const Node* node = section.get("pairs")) head.pairs = pairs(context, *node, place, path, width);
  if (const std::optional<Row> row = binder_.row(section.get("scalar"), place.scope); row && row->names()) {
    head.scalar = binder_.bind({.role = Role::Scalar, .path = path + ".scalar"}, binder_.names(*row->names(), place, ".weight"), *row, place);
  }
  return head;
}

}  // namespace pm::policy
