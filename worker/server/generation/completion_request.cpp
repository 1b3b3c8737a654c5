// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/completion_request.h"

#include <algorithm>

#include "worker/server/http/api_error.h"

namespace pm::server {

using engine::Dialect;
using engine::ParameterGroup;
using nlohmann::json;

std::span<const UnsupportedField> unsupported_fields() {
  static constexpr UnsupportedField fields[] = {
      {"guided_json", "send structured_outputs.json"},
      {"guided_regex", "send structured_outputs.regex"},
      {"guided_choice", "send structured_outputs.choice"},
      {"guided_grammar", "send structured_outputs.grammar"},
      {"grammar", "send structured_outputs.grammar"},
      {"json_schema", "send response_format, or structured_outputs.json"},
      {"allowed_token_ids", "bad_words_ids bans tokens"},
      {"logits_processors", "bad_words bans words"},
      {"stop_token_ids", "stop ends an answer before a text"},
      {"truncate_prompt_tokens", "shorten the prompt"},
      {"use_beam_search", "POST /generate has num_beams"},
  };
  return fields;
}

void read_max_tokens(Fields& fields, const std::string& name, GenerationParams& params) {
  read_parameter(fields, name, engine::parameter_of(&engine::GenerationConfig::max_new_tokens), Dialect::OpenAi,
                 params);
}

OpenAiFields read_openai(Fields& fields, std::string_view body, const ServedNames& names, GenerationParams& params,
                         UnknownFields& unknown) {
  OpenAiFields read;
  read_common(fields, Dialect::OpenAi, params);
  read_group(fields, ParameterGroup::Mode, Dialect::OpenAi, params);
  read_group(fields, ParameterGroup::Length, Dialect::OpenAi, params);
  read_stops(fields, "stop", params);
  params.constraint = read_constraint(fields, body);
  read_group(fields, ParameterGroup::Search, Dialect::OpenAi, params);
  read.n = params.values.get(&engine::SearchParams::num_return_sequences).value_or(1);
  read.stream = fields.boolean("stream").value_or(false);
  if (const auto* options = fields.find("stream_options")) {
    if (!options->is_object())
      throw bad_field("stream_options", json_excerpt(*options), "an object with include_usage");
    if (!read.stream)
      throw ApiError(400, "invalid_value", "stream_options needs stream: true; send both or neither", "stream_options");
    Fields inner(*options, "stream_options");
    read.include_usage = inner.boolean("include_usage").value_or(false);
    inner.boolean("include_obfuscation");  // OpenAI pads events against traffic analysis; accepted and ignored here
    unknown.take(inner);
  }
  read.prompt_logprobs = params.prompt_logprobs = fields.integer("prompt_logprobs", 0, max_logprobs).value_or(-1);
  if (read.stream && read.prompt_logprobs >= 0)
    throw ApiError(400, "invalid_value",
                   "prompt_logprobs are part of a whole reply; leave out stream or prompt_logprobs", "prompt_logprobs");
  for (const UnsupportedField& one : unsupported_fields())
    if (const auto* value = fields.find(one.name))
      throw ApiError(400, "invalid_value",
                     std::string(one.name) + " is " + json_excerpt(*value) + "; it is not supported: " + one.advice,
                     one.name);
  fields.boolean("include_usage");  // Kthena's router sets it; an answer that is not streamed always has its usage
  read_model(fields, names, params);
  return read;
}

namespace {

void read_best_of(Fields& fields, CompletionRequest& request) {
  GenerationParams beside;  // it has the range of n
  read_parameter(fields, "best_of", engine::parameter_of(&engine::SearchParams::num_return_sequences), Dialect::OpenAi,
                 beside);
  request.best_of = beside.values.get(&engine::SearchParams::num_return_sequences).value_or(request.n);
  if (request.best_of < request.n)
    throw bad_field("best_of", std::to_string(request.best_of),
                    "at least " + std::to_string(request.n) + ", the value of n");
  if (request.stream && request.best_of > request.n)
    throw ApiError(400, "invalid_value",
                   "the best of several completions is known at their end; leave out stream, or set best_of to n",
                   "best_of");
}

}  // namespace

CompletionRequest parse_completion(std::string_view body, const ServedNames& names, UnknownFields& unknown) {
  const json object = parse_object(body, max_generation_depth);
  Fields fields(object);
  CompletionRequest request;
  const auto* prompt = fields.find("prompt");
  if (!prompt)
    throw ApiError(
        400, "missing_field",
        "prompt is missing; allowed: a string, an array of strings, an array of token ids, or an array of such arrays",
        "prompt");
  request.prompts = parse_prompts(*prompt, "prompt");
  const auto* most = fields.find("max_tokens");
  request.only_prompt = most && *most == 0;
  if (request.only_prompt)
    request.params.values.set(&engine::GenerationConfig::max_new_tokens, 1);  // the engine's least, which is not shown
  else
    read_max_tokens(fields, "max_tokens", request.params);
  const OpenAiFields read = read_openai(fields, body, names, request.params, unknown);
  request.n = request.best_of = read.n;
  request.prompt_logprobs = read.prompt_logprobs;
  request.stream = read.stream;
  request.include_usage = read.include_usage;
  read_best_of(fields, request);
  request.logprobs = fields.integer("logprobs", 0, max_logprobs).value_or(-1);
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo) request.params.prompt_logprobs = std::max(read.prompt_logprobs, request.logprobs);
  fields.only("suffix", nullptr);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  unknown.take(fields);
  return request;
}

}  // namespace pm::server
