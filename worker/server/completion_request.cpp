// See completion_request.h.
#include "worker/server/completion_request.h"

#include "worker/server/api_error.h"

namespace pm::server {

using nlohmann::json;

OpenAiFields read_openai(Fields& fields, const std::string& model, Asked& asked) {
  OpenAiFields read;
  read_common(fields, asked);
  asked.temperature = fields.number("temperature", 0, 2);
  asked.min_new_tokens = fields.integer("min_tokens", 0, INT32_MAX);
  read_stops(fields, "stop", asked);
  read.n = fields.integer("n", 1, kChoices).value_or(1);
  read.stream = fields.boolean("stream").value_or(false);
  if (const auto* options = fields.find("stream_options")) {
    if (!options->is_object()) throw bad_field("stream_options", shown(*options), "an object with include_usage");
    if (!read.stream) throw ApiError(400, "invalid_value", "stream_options is given without stream: true; leave it out or stream", "stream_options");
    Fields inner(*options, "stream_options.");
    read.include_usage = inner.boolean("include_usage").value_or(false);
    inner.boolean("include_obfuscation");   // pads events against eavesdroppers, at OpenAI
    inner.refuse_others();
  }
  fields.only("logit_bias", json::object());
  read_model(fields, model);
  return read;
}

CompletionRequest parse_completion(std::string_view body, const std::string& model) {
  const json object = parse_object(body);
  Fields fields(object);
  CompletionRequest request;
  const auto* prompt = fields.find("prompt");
  if (!prompt) throw ApiError(400, "missing_field", "prompt is missing; allowed: a string, an array of strings, an array of token ids, or an array of such arrays", "prompt");
  request.prompts = prompts_of(*prompt, "prompt");
  request.asked.max_new_tokens = fields.integer("max_tokens", 1, INT64_MAX);
  const OpenAiFields read = read_openai(fields, model, request.asked);
  request.n = read.n;
  request.stream = read.stream;
  request.include_usage = read.include_usage;
  const auto best = fields.integer("best_of", 1, kChoices);
  if (best && *best != request.n) throw bad_field("best_of", std::to_string(*best), std::to_string(request.n) + ", which is n: all answers are given, none is chosen from more");
  request.logprobs = fields.integer("logprobs", 0, kLogprobs).value_or(-1);
  request.echo = fields.boolean("echo").value_or(false);
  if (request.echo && request.logprobs >= 0)
    throw ApiError(400, "invalid_value", "echo is given with logprobs, but log-probabilities of the prompt's tokens are not computed; leave one of them out", "echo");
  fields.only("suffix", nullptr);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  fields.refuse_others();
  return request;
}

}  // namespace pm::server
