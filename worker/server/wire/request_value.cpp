// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/request_value.h"

#include "worker/server/http/api_error.h"

namespace pm::server {

using nlohmann::json;
using nlohmann::ordered_json;

std::string required_text(Fields& fields, const std::string& name) {
  const auto text = fields.text(name);
  if (!text) throw ApiError(400, "missing_field", fields.path(name) + " is missing", fields.path(name));
  return *text;
}

void check_array(const json& value, const std::string& field, size_t least, size_t most, const std::string& of) {
  if (!value.is_array() || value.size() < least || value.size() > most)
    throw bad_field(field, json_excerpt(value),
                    "an array of " + std::to_string(least) + " to " + std::to_string(most) + " " + of);
}

bool is_copied(const engine::Parameter& parameter) {
  return parameter.group != engine::ParameterGroup::Search && parameter.name_in(engine::Dialect::OpenAi) != nullptr;
}

void copy_sampling(Fields& fields, ordered_json& chat) {
  const auto copy = [&](const std::string& name) {
    if (const json* value = fields.find(name)) chat[name] = *value;
  };
  for (const engine::Parameter& parameter : engine::generation_parameters())
    if (is_copied(parameter)) copy(parameter.name_in(engine::Dialect::OpenAi));
  for (const char* name : {"bad_words", "bad_words_ids", "logit_bias", "model"}) copy(name);
}

std::string requested_model(const ordered_json& chat) {
  const auto model = chat.find("model");
  return model != chat.end() && model->is_string() ? model->get<std::string>() : std::string();
}

}  // namespace pm::server
