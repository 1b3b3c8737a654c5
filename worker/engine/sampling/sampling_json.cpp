// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/sampling/sampling_json.h"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/json_reader.h"

namespace pm::engine {

namespace {

std::optional<ParameterValue> parse(ParameterType type, const nlohmann::json& value) {
  switch (type) {
    case ParameterType::Boolean:
      if (value.is_boolean()) return value.get<bool>();
      break;
    case ParameterType::Integer:
      if (const auto integer = base::integer_from(value)) return *integer;
      break;
    case ParameterType::Number:
      if (value.is_number()) return value.get<double>();
      break;
    case ParameterType::EarlyStopping:
      if (value == "never") return EarlyStopping::Never;
      if (value.is_boolean()) return value.get<bool>() ? EarlyStopping::Yes : EarlyStopping::No;
      break;
  }
  return std::nullopt;
}

bool is_token_id(const Parameter& parameter) {
  return std::holds_alternative<int32_t SamplingParams::*>(parameter.member);
}

}  // namespace

bool assign(ParameterValues& values, const Parameter& parameter, Dialect dialect, const nlohmann::json& value) {
  const auto parsed = parse(parameter.type(), value);
  return parsed && values.assign(parameter, dialect, *parsed);
}

GenerationConfig read_generation_config(const nlohmann::json& object) {
  ParameterValues values;
  for (const Parameter& parameter : generation_parameters()) {
    const auto found = object.find(parameter.name);
    if (found == object.end() || found->is_null() || (found->is_array() && is_token_id(parameter))) continue;
    if (!assign(values, parameter, Dialect::HuggingFace, *found))
      throw std::invalid_argument(std::string(parameter.name) + " is " + found->dump().substr(0, 80) +
                                  "; allowed: " + parameter.allowed(Dialect::HuggingFace));
  }
  GenerationConfig config;
  values.apply_to(config);
  const auto words = object.find("bad_words_ids");
  if (words != object.end() && !words->is_null()) words->get_to(config.sampling.bad_words);
  for (const auto& [name, member] : {std::pair{"suppress_tokens", &SamplingParams::suppress_tokens},
                                     {"begin_suppress_tokens", &SamplingParams::begin_suppress_tokens}}) {
    const auto ids = object.find(name);
    if (ids != object.end() && !ids->is_null()) ids->get_to(config.sampling.*member);
  }
  return config;
}

}  // namespace pm::engine
