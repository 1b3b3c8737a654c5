// SPDX-License-Identifier: Apache-2.0
#include "worker/server/tasks/entity_inputs.h"

#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"
#include "worker/server/tasks/text_rows.h"
#include "worker/tokenizer/entity_tokenizer.h"

namespace pm::server {
namespace {

using nlohmann::json;

const char* const spans_allowed = "an array of [start, end], characters of the text: [[0, 7], [17, 28]]";

size_t character(const json& value, const std::string& field) {
  const auto number = base::integer_from(value, 0, INT32_MAX);
  if (!number) throw bad_field(field, json_excerpt(value), spans_allowed);
  return static_cast<size_t>(*number);
}

std::vector<CharacterSpan> parse_spans(const json& value) {
  if (!value.is_array()) throw bad_field("entity_spans", json_excerpt(value), spans_allowed);
  if (value.size() > max_inputs)
    throw ApiError(413, "too_many_inputs",
                   "entity_spans has " + std::to_string(value.size()) + " spans; at most " +
                       std::to_string(max_inputs) + " in one request",
                   "entity_spans");
  std::vector<CharacterSpan> spans;
  for (const json& one : value) {
    const std::string field = "entity_spans[" + std::to_string(spans.size()) + "]";
    if (!one.is_array() || one.size() != 2) throw bad_field(field, json_excerpt(one), spans_allowed);
    spans.emplace_back(character(one[0], field + "[0]"), character(one[1], field + "[1]"));
  }
  return spans;
}

}  // namespace

bool reads_entities_of_texts(const ServerContext& context) {
  return !context.capabilities.entities.empty() && context.entity_tokenizer != nullptr;
}

Arrays parse_entity_inputs(Fields& fields, const ServerContext& context, const std::string& text, bool truncate) {
  const std::vector<CharacterSpan> spans = parse_spans(require_field(fields, "entity_spans", spans_allowed));
  std::vector<std::string> titles;
  const json* given = fields.find("entities");
  bool single = false;
  if (given) titles = parse_texts(*given, "entities", single);
  const auto longest = static_cast<size_t>(max_input_tokens(context));
  const EntityEncoding found = context.entity_tokenizer->encode(text, spans, given ? &titles : nullptr,
                                                                truncate ? std::optional(longest) : std::nullopt);
  const auto row = [](std::vector<int64_t> values) {
    return Array{{1, static_cast<int64_t>(values.size())}, std::move(values)};
  };
  const Capabilities& can = context.capabilities;
  Arrays inputs;
  inputs["input_ids"] = row({found.ids.begin(), found.ids.end()});
  if (found.entities.empty()) return inputs;  // truncation left none
  inputs[can.entities] = row(found.entities);
  inputs[can.mentions] = {{1, static_cast<int64_t>(found.entities.size()), static_cast<int64_t>(found.width)},
                          found.mentions};
  if (found.has_places) {
    inputs["entity_start_positions"] = row(found.starts);
    inputs["entity_end_positions"] = row(found.ends);
  }
  return inputs;
}

schema::Properties entity_properties() {
  const json place = schema::integer(0, INT32_MAX);
  json spans = schema::list({{"type", "array"}, {"items", place}, {"minItems", 2}, {"maxItems", 2}}, 1, max_inputs);
  return {{"text", schema::text("In place of inputs: a text that mentions entities", 1)},
          {"entity_spans", schema::described(std::move(spans), "Where it mentions them: characters from, and before")},
          {"entities", texts_schema("Their titles; default: masked entities")}};
}

}  // namespace pm::server
