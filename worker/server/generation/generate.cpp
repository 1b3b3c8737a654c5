// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/generate.h"

#include "worker/server/generation/event_stream.h"
#include "worker/server/generation/generate_request.h"
#include "worker/server/generation/openai_reply.h"
#include "worker/server/generation/output_processor.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/json_response.h"
#include "worker/server/http/percent_encoding.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

/// Builds the reply of one request in Hugging Face's format.
struct GenerateReply {
  const ServerContext& context;
  GenerateRequest request;
  std::shared_ptr<OutputProcessor> output;

  const Choice& choice(size_t i) const { return output->choices()[i]; }
  std::string text(size_t i) const;
  std::vector<int32_t> sequence(size_t i) const;
  json token(const Choice::EmittedToken& emitted) const;
  json details(size_t i, bool tokens) const;
  json result(size_t i) const;
  json all() const;
};

/// Returns what transformers' generate returns, without padding: the prompt and the answer with its end token, or for
/// an encoder-decoder the start token and the answer.
std::vector<int32_t> GenerateReply::sequence(size_t i) const {
  std::vector<int32_t> ids;
  if (!is_encoder_decoder(context))
    ids = output->prompt(choice(i));
  else if (context.decoder_start >= 0)
    ids = {static_cast<int32_t>(context.decoder_start)};
  const auto new_ids = choice(i).ids();
  ids.insert(ids.end(), new_ids.begin(), new_ids.end());
  return ids;
}

std::string GenerateReply::text(size_t i) const {
  const std::string whole = context.tokenizer->decode(sequence(i));
  if (request.full_text || is_encoder_decoder(context)) return whole;
  const std::string before = context.tokenizer->decode(output->prompt(choice(i)));
  return whole.starts_with(before) ? whole.substr(before.size()) : context.tokenizer->decode(choice(i).ids());
}

json GenerateReply::token(const Choice::EmittedToken& emitted) const {
  const int32_t id = emitted.token.id;
  json made = {{"id", id}, {"text", emitted.text}, {"logprob", nullptr}, {"special", false}};
  if (request.details) made["logprob"] = emitted.token.logprob;
  if (context.tokenizer && emitted.text.empty() && context.tokenizer->decode({&id, 1}).empty()) {
    made["text"] = context.tokenizer->piece(id);
    made["special"] = true;
  }
  return made;
}

json GenerateReply::details(size_t i, bool tokens) const {
  const Choice& one = choice(i);
  json made = {{"finish_reason", one.stopped_by_text()    ? "stop_sequence"
                                 : one.finish() == "stop" ? "eos_token"
                                                          : "length"},
               {"generated_tokens", one.tokens().size()},
               {"seed", nullptr}};
  if (request.sampling.do_sample) made["seed"] = request.sampling.seed + one.request();
  if (!tokens) return made;
  made["prefill"] = json::array();
  made["tokens"] = json::array();
  for (const auto& emitted : one.tokens()) made["tokens"].push_back(token(emitted));
  return made;
}

json GenerateReply::result(size_t i) const {
  json made = json::object();
  if (context.tokenizer) made["generated_text"] = text(i);
  if (!context.tokenizer || request.return_token_ids) made["sequence"] = sequence(i);
  if (request.search.num_beams > 1) made["score"] = choice(i).score();
  if (request.details) made["details"] = details(i, true);
  if (const auto& passages = output->passages(choice(i))) made["passages"] = passages_json(*passages);
  return made;
}

/// Returns one result, a list for several sequences of an input, or a list of these for several inputs.
json GenerateReply::all() const {
  const auto per_input = static_cast<size_t>(request.search.num_return_sequences);
  json inputs = json::array();
  for (size_t i = 0; i < output->choices().size(); i += per_input) {
    json several = json::array();
    for (size_t j = 0; j < per_input; ++j) several.push_back(result(i + j));
    inputs.push_back(per_input == 1 ? several[0] : several);
  }
  return request.single ? inputs[0] : inputs;
}

StreamFormat stream_format(const GenerateReply& generated) {
  StreamFormat format;
  format.send_done = false;
  format.on_text = [generated, sent = std::make_shared<std::vector<size_t>>(generated.output->choices().size())](
                       const StreamFormat::Send& send, size_t i, const std::string&) {
    const Choice& choice = generated.choice(i);
    const bool ended = !choice.finish().empty();
    size_t& next = (*sent)[i];
    const auto event = [&](const json& token, bool last) {
      json body = {{"index", next}, {"token", token}, {"generated_text", nullptr}, {"details", nullptr}};
      if (sent->size() > 1) body["choice"] = i;
      if (last && generated.context.tokenizer) body["generated_text"] = generated.text(i);
      if (last && generated.request.details) body["details"] = generated.details(i, false);
      if (const auto& passages = generated.output->passages(choice); last && passages)
        body["passages"] = passages_json(*passages);
      return send(body);
    };
    if (ended && next == choice.tokens().size()) return event(nullptr, true);  // the sequence ended without a token
    while (next < choice.tokens().size()) {
      const json token = generated.token(choice.tokens()[next++]);
      if (!event(token, ended && next == choice.tokens().size())) return false;
    }
    return true;
  };
  return format;
}

/// Parses `object` and submits its requests to the engine.
GenerateReply submit(const ServerContext& context, const RoutedRequest& call, const json& object,
                     std::shared_ptr<void> admitted, steady_clock::time_point arrived) {
  GenerateReply generated{context, parse_generate(object, call.request.body, context, context.random()), {}};
  const GenerateRequest& request = generated.request;
  const std::string field = object.contains("inputs") ? "inputs" : "input_ids";
  const bool logprobs = request.details && request.search.num_beams == 1;
  auto requests =
      make_engine_requests(context, call.request.id, encode_prompts(context, request.prompts, field), field,
                           request.params, request.sampling, request.search, request.length, logprobs ? 0 : -1);
  generated.output = std::make_shared<OutputProcessor>(context, std::move(requests), request.params.stop, call.access,
                                                       std::move(admitted), arrived);
  return generated;
}

}  // namespace

http::Response generate(const ServerContext& context, const RoutedRequest& call) {
  const auto arrived = steady_clock::now();
  auto admitted = context.admit();
  const json object = parse_route_body(context, call);
  const GenerateReply generated = submit(context, call, object, std::move(admitted), arrived);
  if (generated.request.stream) return event_stream(context, call, generated.output, stream_format(generated));
  if (!run_to_completion(*generated.output, call, [](size_t, const std::string&) {})) return client_gone_response();
  return json_response(generated.all());
}

http::Response generate_text(const ServerContext& context, const RoutedRequest& call) {
  const auto arrived = steady_clock::now();
  auto admitted = context.admit();
  refuse_unless_served(context, call);
  if (!context.tokenizer)
    throw ApiError(400, "no_tokenizer",
                   "this model's folder has no tokenizer that is served; send token ids to POST /generate");
  const std::string text = percent_decode(call.path_suffix);
  if (text.empty())
    throw ApiError(400, "invalid_value",
                   "the path has no text after /generate_text/; append the percent-encoded prompt");
  json object = query_object(call.request.query);
  for (const char* name : {"inputs", "input_ids", "stream", "details", "return_token_ids", "response_format",
                           "structured_outputs", "grammar"})
    if (object.contains(name))
      throw ApiError(400, "unknown_field",
                     std::string(name) + " is not a parameter of this path; send it to POST /generate", name);
  object["inputs"] = text;
  const GenerateReply generated = submit(context, call, object, std::move(admitted), arrived);
  if (!run_to_completion(*generated.output, call, [](size_t, const std::string&) {})) return client_gone_response();
  json outputs = json::array();
  for (size_t i = 0; i < generated.output->choices().size(); ++i) outputs.push_back(generated.text(i));
  return json_response({{"inputs", text}, {"outputs", outputs.size() == 1 ? outputs[0] : outputs}});
}

}  // namespace pm::server
