// SPDX-License-Identifier: Apache-2.0
#include "worker/cli/generation_flags.h"

#include <algorithm>
#include <charconv>

namespace pm::cli {

namespace {

using engine::Dialect;
using engine::EarlyStopping;
using engine::Parameter;
using engine::ParameterType;
using engine::ParameterValue;
using engine::ParameterValues;

template <class T>
std::optional<ParameterValue> parse_number(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [rest, failure] = std::from_chars(text.data(), end, value);
  return rest == end && failure == std::errc() ? std::optional<ParameterValue>(value) : std::nullopt;
}

std::optional<ParameterValue> parse(ParameterType type, const std::string& text) {
  if (type == ParameterType::Integer) return parse_number<int64_t>(text);
  if (type == ParameterType::Number) return parse_number<double>(text);
  const bool is_true = text == "true";
  if (type == ParameterType::EarlyStopping) {
    if (text == "never") return EarlyStopping::Never;
    if (is_true || text == "false") return is_true ? EarlyStopping::Yes : EarlyStopping::No;
  } else if (is_true || text == "false") {
    return is_true;
  }
  return std::nullopt;
}

void add_flag(CLI::App& app, const Parameter& parameter, ParameterValues& values) {
  std::string flag = std::string("--") + parameter.name;
  std::replace(flag.begin(), flag.end(), '_', '-');
  const std::string allowed = parameter.allowed(Dialect::HuggingFace), description = parameter.description;
  const auto set = [=, &parameter, &values](const std::string& text) {
    const auto value = parse(parameter.type(), text);
    if (!value || !values.assign(parameter, Dialect::HuggingFace, *value))
      throw CLI::ValidationError(flag, "found " + text + ", expected " + allowed);
  };
  if (parameter.type() == ParameterType::Boolean)
    app.add_flag_function(
           flag, [=](int64_t count) { set(count > 0 ? "true" : "false"); }, description)
        ->check(CLI::IsMember({"true", "false"}));
  else
    app.add_option_function<std::string>(flag, set, description + " (" + allowed + ")")->type_name("VALUE");
}

}  // namespace

void add_generation_flags(CLI::App& app, ParameterValues& values) {
  for (const Parameter& parameter : engine::generation_parameters()) add_flag(app, parameter, values);
}

engine::GenerationConfig generation_config(const ParameterValues& values, engine::GenerationConfig defaults) {
  using engine::GenerationConfig;
  if (values.has(&GenerationConfig::max_length) && !values.has(&GenerationConfig::max_new_tokens))
    defaults.max_new_tokens.reset();
  if (values.has(&engine::SamplingParams::min_new_tokens) && !values.has(&GenerationConfig::min_length))
    defaults.min_length.reset();
  values.apply_to(defaults);
  return defaults;
}

}  // namespace pm::cli
