// SPDX-License-Identifier: Apache-2.0
#include "worker/server/replies/constraint.h"

#include <algorithm>

#include "worker/base/error.h"
#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// A constraint of the tokenizer as the engine sees it.
class GrammarConstraint final : public engine::TokenConstraint {
 public:
  explicit GrammarConstraint(TokenMatcher matcher, bool may_end = false)
      : matcher_(std::move(matcher)), may_end_(may_end) {}
  std::unique_ptr<engine::TokenConstraint> fork() const override {
    return std::make_unique<GrammarConstraint>(matcher_.fork(), may_end_);
  }
  engine::TokenMask next() override {
    TokenMatcher::Mask mask = matcher_.mask();
    may_end_ = mask.may_end;
    return {std::move(mask.words), mask.may_end};
  }
  bool may_end() const override { return may_end_; }
  bool append(int32_t id) override {
    may_end_ = false;
    return matcher_.append(id);
  }

 private:
  TokenMatcher matcher_;
  bool may_end_ = false;
};

ConstraintSpec any_object(const std::string& field) {
  return {ConstraintKind::JsonSchema, R"({"type": "object"})", field};
}

/// Returns the text of a schema, which stands in the request as JSON.
ConstraintSpec schema_spec(const ordered_json& schema, const std::string& field) {
  if (!schema.is_object()) throw bad_field(field, json_excerpt(json(schema)), "a JSON Schema: an object");
  return {ConstraintKind::JsonSchema, schema.dump(), field};
}

/// Reads {"type": "text"}, {"type": "json_object"} or {"type": "json_schema", "json_schema": {"name", "description",
/// "schema", "strict"}}. A schema is always held, strict or not.
std::optional<ConstraintSpec> read_response_format(const json& format, const ordered_json& ordered) {
  const std::string field = "response_format";
  if (!format.is_object()) throw bad_field(field, json_excerpt(format), "an object with type");
  Fields fields(format, field);
  const auto type = fields.text("type");
  if (!type || (*type != "text" && *type != "json_object" && *type != "json_schema"))
    throw bad_field(field + ".type", type ? json_excerpt(*type) : "missing",
                    "\"text\", \"json_object\" or \"json_schema\"");
  const json* named = *type == "json_schema" ? fields.find("json_schema") : nullptr;
  fields.refuse_others();
  if (*type == "text") return std::nullopt;
  if (*type == "json_object") return any_object(field);
  if (!named || !named->is_object())
    throw bad_field(field + ".json_schema", named ? json_excerpt(*named) : "missing", "an object with name and schema");
  Fields inner(*named, field + ".json_schema");
  inner.text("name");
  inner.text("description");
  inner.boolean("strict");
  const bool has_schema = inner.find("schema") != nullptr;
  inner.refuse_others();
  if (!has_schema) return any_object(field);  // as OpenAI: any object
  return schema_spec(ordered.at("json_schema").at("schema"), field + ".json_schema.schema");
}

ConstraintSpec read_choice(const json& choice, const std::string& field) {
  const bool texts = choice.is_array() && std::all_of(choice.begin(), choice.end(), [](const json& one) {
                       return one.is_string() && !one.get_ref<const std::string&>().empty();
                     });
  if (!texts || choice.empty() || choice.size() > max_choices)
    throw bad_field(field, json_excerpt(choice),
                    "an array of 1 to " + std::to_string(max_choices) + " strings, none of them empty");
  return {ConstraintKind::Choice, choice.dump(), field};
}

/// Reads an object with one of json, json_object, regex, choice and grammar.
std::optional<ConstraintSpec> read_structured_outputs(const json& outputs, const ordered_json& ordered) {
  const std::string field = "structured_outputs";
  const std::string allowed = "an object with one of json, json_object, regex, choice and grammar";
  if (!outputs.is_object()) throw bad_field(field, json_excerpt(outputs), allowed);
  Fields fields(outputs, field);
  std::vector<ConstraintSpec> found;
  if (const json* schema = fields.find("json")) {
    const std::string place = field + ".json";
    if (schema->is_string())  // vLLM's clients also send the text of one
      found.push_back({ConstraintKind::JsonSchema, *schema, place});
    else
      found.push_back(schema_spec(ordered.at("json"), place));
  }
  if (fields.boolean("json_object").value_or(false)) found.push_back(any_object(field + ".json_object"));
  if (const auto regex = fields.text("regex")) found.push_back({ConstraintKind::Regex, *regex, field + ".regex"});
  if (const json* choice = fields.find("choice")) found.push_back(read_choice(*choice, field + ".choice"));
  if (const auto grammar = fields.text("grammar"))
    found.push_back({ConstraintKind::Grammar, *grammar, field + ".grammar"});
  fields.refuse_others();
  if (found.size() != 1) throw bad_field(field, "an object with " + std::to_string(found.size()) + " of them", allowed);
  return found.front();
}

/// Reads {"type": "json", "value": schema}, {"type": "regex", "value": text} or {"type": "json_schema", "value":
/// {"name", "schema"}} of text-generation-inference.
ConstraintSpec read_grammar(const json& grammar, const ordered_json& ordered) {
  const std::string field = "grammar";
  if (!grammar.is_object()) throw bad_field(field, json_excerpt(grammar), "an object with type and value");
  Fields fields(grammar, field);
  const auto type = fields.text("type");
  if (!type || (*type != "json" && *type != "regex" && *type != "json_schema"))
    throw bad_field(field + ".type", type ? json_excerpt(*type) : "missing", "\"json\", \"json_schema\" or \"regex\"");
  const json* value = fields.find("value");
  fields.refuse_others();
  const auto missing = [&](const json* found, const std::string& place, const char* allowed) {
    return bad_field(place, found ? json_excerpt(*found) : "missing", allowed);
  };
  const std::string place = field + ".value";
  if (*type == "regex") {
    if (!value || !value->is_string()) throw missing(value, place, "a regular expression");
    return {ConstraintKind::Regex, value->get<std::string>(), place};
  }
  const bool is_named = *type == "json_schema";
  if (is_named && (!value || !value->is_object())) throw missing(value, place, "an object with name and schema");
  if (value && value->is_string()) return {ConstraintKind::JsonSchema, value->get<std::string>(), place};
  const json* schema = is_named && value->contains("schema") ? &value->at("schema") : is_named ? nullptr : value;
  if (!schema) throw missing(schema, place, "a JSON Schema");
  const ordered_json& in_order = ordered.at("value");
  return is_named ? schema_spec(in_order.at("schema"), place + ".schema") : schema_spec(in_order, place);
}

/// Reads the one of these fields that constrains the answer. In the body they may stand under "parameters".
std::optional<ConstraintSpec> read_fields(Fields& fields, std::initializer_list<const char*> names,
                                          std::string_view body) {
  std::optional<ConstraintSpec> spec;
  ordered_json ordered;
  for (const std::string name : names) {
    const json* value = fields.find(name);
    if (!value) continue;
    if (spec)
      throw ApiError(400, "invalid_value",
                     std::string(spec->field, 0, spec->field.find('.')) + " and " + name +
                         " both constrain the answer; send one of them",
                     name);
    if (ordered.is_null()) ordered = ordered_json::parse(body);
    const ordered_json& own = ordered.contains(name) ? ordered.at(name) : ordered.at("parameters").at(name);
    spec = name == "response_format"      ? read_response_format(*value, own)
           : name == "structured_outputs" ? read_structured_outputs(*value, own)
                                          : read_grammar(*value, own);
  }
  if (spec && spec->text.size() > max_constraint_bytes)
    throw bad_field(spec->field, std::to_string(spec->text.size()) + " bytes",
                    "at most " + std::to_string(max_constraint_bytes) + " bytes");
  return spec;
}

}  // namespace

std::optional<ConstraintSpec> read_constraint(Fields& fields, std::string_view body) {
  return read_fields(fields, {"response_format", "structured_outputs"}, body);
}

std::optional<ConstraintSpec> read_generate_constraint(Fields& fields, std::string_view body) {
  return read_fields(fields, {"response_format", "structured_outputs", "grammar"}, body);
}

std::shared_ptr<const engine::TokenConstraint> make_constraint(const Tokenizer* tokenizer, const ConstraintSpec& spec,
                                                               bool at_start) {
  if (!tokenizer)
    throw ApiError(400, "no_tokenizer",
                   spec.field + " constrains text, but this model's folder has no tokenizer that is served",
                   spec.field);
  try {
    return std::make_shared<GrammarConstraint>(TokenMatcher::compile(*tokenizer, spec.kind, spec.text, at_start));
  } catch (const Error& error) {
    throw ApiError(400, "invalid_constraint", spec.field + " cannot be held: " + error.what(), spec.field);
  }
}

}  // namespace pm::server
