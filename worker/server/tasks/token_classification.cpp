// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/token_classification.h"

#include <algorithm>

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/character_offsets.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"
#include "worker/server/tasks/vector_math.h"

namespace pm::server {
namespace {

using nlohmann::json;

struct Entity {
  std::string label;
  double score = 0;
  size_t index = 0;  ///< index of the token in the row
  Token token;
  bool unknown = false;  ///< not in the vocabulary; the reply shows the original text
};

/// Splits a label: "B-PER" gives {true, "PER"}, where true means that an entity begins. A label without a prefix
/// continues an entity.
std::pair<bool, std::string> parse_tag(const std::string& label) {
  if (label.starts_with("B-")) return {true, label.substr(2)};
  if (label.starts_with("I-")) return {false, label.substr(2)};
  return {false, label};
}

/// Returns the most probable label of each token that is not special.
std::vector<Entity> classify_row(const ServerContext& context, const Row& row, std::span<const float> logits,
                                 size_t classes) {
  std::vector<Entity> entities;
  const auto& labels = context.capabilities.labels;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].sequence < 0) continue;
    const auto scores = softmax(logits.subspan(i * classes, classes));
    const size_t best = top_indices(scores, 1)[0];
    entities.push_back({best < labels.size() ? labels[best] : "LABEL_" + std::to_string(best), scores[best], i, row[i],
                        context.tokenizer->special().unk == row[i].id});
  }
  return entities;
}

json token_entities(const ServerContext& context, const std::vector<Entity>& entities, const std::string& text,
                    const CharacterOffsets& offsets, const std::vector<std::string>& ignored) {
  json all = json::array();
  for (const Entity& entity : entities) {
    if (std::find(ignored.begin(), ignored.end(), entity.label) != ignored.end()) continue;
    const Token& token = entity.token;
    const std::string word =
        entity.unknown ? text.substr(token.begin, token.end - token.begin) : context.tokenizer->id_to_token(token.id);
    all.push_back({{"entity", entity.label},
                   {"score", entity.score},
                   {"index", entity.index},
                   {"word", word},
                   {"start", offsets.character(token.begin)},
                   {"end", offsets.character(token.end)}});
  }
  return all;
}

/// Merges neighbours with the same tag into one entity, unless the later one begins a new entity ("B-").
json group_entities(const ServerContext& context, const std::vector<Entity>& entities, const std::string& text,
                    const CharacterOffsets& offsets, const std::vector<std::string>& ignored) {
  json all = json::array();
  for (size_t first = 0; first < entities.size();) {
    const std::string tag = parse_tag(entities[first].label).second;
    size_t end = first + 1;
    while (end < entities.size() && parse_tag(entities[end].label) == std::pair(false, tag)) ++end;
    std::vector<int32_t> ids;
    double score = 0;
    bool unknown = false;
    for (size_t i = first; i < end; ++i) {
      ids.push_back(entities[i].token.id);
      score += entities[i].score;
      unknown = unknown || entities[i].unknown;
    }
    const size_t from = entities[first].token.begin, to = entities[end - 1].token.end;
    // the name is the part of the first label after its first '-', as in transformers' pipeline
    const std::string& label = entities[first].label;
    const std::string name = label.find('-') == label.npos ? label : label.substr(label.find('-') + 1);
    if (std::find(ignored.begin(), ignored.end(), name) == ignored.end())
      all.push_back({{"entity_group", name},
                     {"score", score / static_cast<double>(end - first)},
                     {"word", unknown ? text.substr(from, to - from) : context.tokenizer->decode(ids, false)},
                     {"start", offsets.character(from)},
                     {"end", offsets.character(to)}});
    first = end;
  }
  return all;
}

}  // namespace

Operation describe_token_classification(const ServerContext& context) {
  const json count = schema::integer(0, INT64_MAX), text = schema::text(), score = schema::or_null(schema::real());
  const json token = schema::object({{"entity", text, true},
                                     {"score", score, true},
                                     {"index", count, true},
                                     {"word", text, true},
                                     {"start", count, true},
                                     {"end", count, true}});
  const json group = schema::object({{"entity_group", text, true},
                                     {"score", score, true},
                                     {"word", text, true},
                                     {"start", count, true},
                                     {"end", count, true}});
  const json labels = schema::any({schema::text("", 1), schema::list(schema::text("", 1), 0, max_inputs)},
                                  "Labels to leave out; default [\"O\"]");
  return task_operation(
      context, "Token classification: entities in texts",
      {{"inputs", texts_schema("One text gives a list of entities, an array of texts an array of lists"), true},
       {"aggregation_strategy",
        schema::one_of({"none", "simple"},
                       "none (default): one entity per token; simple: neighbouring tokens are merged")},
       {"ignore_labels", labels}},
      schema::any({one_or_list(schema::list(token)), one_or_list(schema::list(group))}),
      {{"inputs", "Anna Smith lives in Paris"}});
}

http::Response classify_tokens(const ServerContext& context, const RoutedRequest& call, const json& object) {
  Fields fields(object);
  std::shared_ptr<const engine::Adapter> adapter;
  const bool truncate = read_common_fields(fields, context, &adapter);
  bool single = false;
  const auto texts = parse_texts(require_field(fields, "inputs", "a text or an array of texts"), "inputs", single);
  const auto strategy = fields.text("aggregation_strategy").value_or("none");
  if (strategy != "none" && strategy != "simple")
    throw bad_field("aggregation_strategy", json_excerpt(strategy), "none or simple");
  std::vector<std::string> ignored{"O"};
  if (const json* value = fields.find("ignore_labels")) {
    bool one = false;
    ignored =
        value->is_array() && value->empty() ? std::vector<std::string>() : parse_texts(*value, "ignore_labels", one);
  }
  fields.refuse_others();

  std::vector<Row> rows;
  for (const auto& text : texts)
    rows.push_back(
        encode_row(context, text, truncate, single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]"));
  const auto starts = split_into_batches(rows, context.max_batch_tokens);
  std::vector<ForwardBatch> batches;
  for (size_t b = 0; b + 1 < starts.size(); ++b)
    batches.push_back({pad_rows(context, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {"logits"}});
  for (ForwardBatch& batch : batches) batch.adapter = adapter;
  const auto outputs = run_forward_batches(context, call, std::move(batches));
  json all = json::array();
  for (size_t b = 0; b < outputs.size(); ++b) {
    const auto& logits = float_values(outputs[b], "logits", 3);
    const auto& shape = outputs[b].at("logits").shape;
    const auto length = static_cast<size_t>(shape[1]), classes = static_cast<size_t>(shape[2]);
    for (size_t r = starts[b]; r < starts[b + 1]; ++r) {
      const auto entities = classify_row(
          context, rows[r], std::span(logits).subspan((r - starts[b]) * length * classes, length * classes), classes);
      const CharacterOffsets offsets(texts[r]);
      all.push_back(strategy == "none" ? token_entities(context, entities, texts[r], offsets, ignored)
                                       : group_entities(context, entities, texts[r], offsets, ignored));
    }
  }
  return json_response(single ? all[0] : all);
}

}  // namespace pm::server
