// POST /classify for token classification: entities as transformers' pipeline groups them. See routes.h.
#include <algorithm>

#include "worker/server/api_error.h"
#include "worker/server/numbers.h"
#include "worker/server/routes.h"
#include "worker/server/task_request.h"
#include "worker/server/text_places.h"
#include "worker/server/text_rows.h"

namespace pm::server {
namespace {

using nlohmann::json;

struct Entity {
  std::string label;
  double score = 0;
  size_t index = 0;          ///< of the token in the row
  Token token;
  bool unknown = false;      ///< the vocabulary lacks it: shown as it stands in the text
};

/// "B-PER" -> {true, "PER"}; without a prefix a token continues.
std::pair<bool, std::string> tag_of(const std::string& label) {
  if (label.starts_with("B-")) return {true, label.substr(2)};
  if (label.starts_with("I-")) return {false, label.substr(2)};
  return {false, label};
}

/// One label per token that is not special.
std::vector<Entity> entities_of(const Serving& serving, const Row& row, std::span<const float> logits, size_t classes) {
  std::vector<Entity> entities;
  const auto& labels = serving.abilities.labels;
  for (size_t i = 0; i < row.size(); ++i) {
    if (row[i].sequence < 0) continue;
    const auto scores = softmax(logits.subspan(i * classes, classes));
    const size_t best = largest(scores, 1)[0];
    entities.push_back({best < labels.size() ? labels[best] : "LABEL_" + std::to_string(best), scores[best], i, row[i],
                        serving.tokenizer->special().unk == row[i].id});
  }
  return entities;
}

json each(const Serving& serving, const std::vector<Entity>& entities, const std::string& text, const TextPlaces& places, const std::vector<std::string>& ignored) {
  json all = json::array();
  for (const Entity& entity : entities) {
    if (std::find(ignored.begin(), ignored.end(), entity.label) != ignored.end()) continue;
    const Token& token = entity.token;
    const std::string word = entity.unknown ? text.substr(token.begin, token.end - token.begin) : serving.tokenizer->spelling(token.id);
    all.push_back({{"entity", entity.label}, {"score", entity.score}, {"index", entity.index}, {"word", word},
                   {"start", places.character(token.begin)}, {"end", places.character(token.end)}});
  }
  return all;
}

/// Neighbours with the same tag become one, unless a later one begins anew ("B-").
json grouped(const Serving& serving, const std::vector<Entity>& entities, const std::string& text, const TextPlaces& places, const std::vector<std::string>& ignored) {
  json all = json::array();
  for (size_t first = 0; first < entities.size();) {
    const std::string tag = tag_of(entities[first].label).second;
    size_t end = first + 1;
    while (end < entities.size() && tag_of(entities[end].label) == std::pair(false, tag)) ++end;
    std::vector<int32_t> ids;
    double score = 0;
    bool unknown = false;
    for (size_t i = first; i < end; ++i) {
      ids.push_back(entities[i].token.id);
      score += entities[i].score;
      unknown = unknown || entities[i].unknown;
    }
    const size_t from = entities[first].token.begin, to = entities[end - 1].token.end;
    // the pipeline's name of a group: what follows the first '-' of its first label
    const std::string& label = entities[first].label;
    const std::string name = label.find('-') == label.npos ? label : label.substr(label.find('-') + 1);
    if (std::find(ignored.begin(), ignored.end(), name) == ignored.end())
      all.push_back({{"entity_group", name}, {"score", score / static_cast<double>(end - first)},
                     {"word", unknown ? text.substr(from, to - from) : serving.tokenizer->decode(ids, false)},
                     {"start", places.character(from)}, {"end", places.character(to)}});
    first = end;
  }
  return all;
}

}  // namespace

Operation describe_entities(const Serving& serving) {
  const json count = schema::integer(0, INT64_MAX), text = schema::text(), score = schema::or_null(schema::real());
  const json token = schema::object({{"entity", text, true}, {"score", score, true}, {"index", count, true}, {"word", text, true}, {"start", count, true}, {"end", count, true}});
  const json group = schema::object({{"entity_group", text, true}, {"score", score, true}, {"word", text, true}, {"start", count, true}, {"end", count, true}});
  const json labels = schema::any({schema::text("", 1), schema::list(schema::text("", 1), 0, kInputs)}, "Labels that are left out; default [\"O\"]");
  return task_operation(serving, "Entities in texts", {{"inputs", texts_schema("One text gives a list of entities, an array of texts an array of lists"), true},
                                                       {"aggregation_strategy", schema::one_of({"none", "simple"}, "Per token (none, the default), or neighbours joined (simple)")},
                                                       {"ignore_labels", labels}},
                        schema::any({one_or_list(schema::list(token)), one_or_list(schema::list(group))}), {{"inputs", "Anna Smith lives in Paris"}});
}

http::Response classify_tokens(const Serving& serving, const Call& call, const json& object) {
  Fields fields(object);
  const bool truncate = common_fields(fields, serving);
  bool single = false;
  const auto texts = texts_of(required(fields, "inputs", "a text or an array of texts"), "inputs", single);
  const auto strategy = fields.text("aggregation_strategy").value_or("none");
  if (strategy != "none" && strategy != "simple") throw bad_field("aggregation_strategy", shown(strategy), "none or simple");
  std::vector<std::string> ignored{"O"};
  if (const json* value = fields.find("ignore_labels")) {
    bool one = false;
    ignored = value->is_array() && value->empty() ? std::vector<std::string>() : texts_of(*value, "ignore_labels", one);
  }
  fields.refuse_others();

  std::vector<Row> rows;
  for (const auto& text : texts) rows.push_back(row_of(serving, text, truncate, single ? "inputs" : "inputs[" + std::to_string(rows.size()) + "]"));
  const auto starts = batches(rows, kPassTokens);
  std::vector<PassInputs> passes;
  for (size_t b = 0; b + 1 < starts.size(); ++b) passes.push_back({arrays_of(serving, std::span(rows).subspan(starts[b], starts[b + 1] - starts[b])), {"logits"}});
  const auto outputs = run_passes(serving, call, std::move(passes));
  json all = json::array();
  for (size_t b = 0; b < outputs.size(); ++b) {
    const auto& logits = floats_of(outputs[b], "logits", 3);
    const auto& shape = outputs[b].at("logits").shape;
    const auto length = static_cast<size_t>(shape[1]), classes = static_cast<size_t>(shape[2]);
    for (size_t r = starts[b]; r < starts[b + 1]; ++r) {
      const auto entities = entities_of(serving, rows[r], std::span(logits).subspan((r - starts[b]) * length * classes, length * classes), classes);
      const TextPlaces places(texts[r]);
      all.push_back(strategy == "none" ? each(serving, entities, texts[r], places, ignored) : grouped(serving, entities, texts[r], places, ignored));
    }
  }
  return json_response(single ? all[0] : all);
}

}  // namespace pm::server
