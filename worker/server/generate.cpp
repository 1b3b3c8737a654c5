// See generate.h.
#include "worker/server/generate.h"

#include "worker/server/answer.h"
#include "worker/server/api_error.h"
#include "worker/server/event_stream.h"
#include "worker/server/generate_request.h"
#include "worker/server/percent.h"
#include "worker/server/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

/// One request's answer in Hugging Face's words.
struct Generated {
  const Serving& serving;
  GenerateRequest request;
  std::shared_ptr<Answer> answer;

  const Choice& choice(size_t i) const { return answer->choices()[i]; }
  std::string text(size_t i) const;
  std::vector<int32_t> sequence(size_t i) const;
  json token(const Choice::Said& said) const;
  json details(size_t i, bool tokens) const;
  json result(size_t i) const;
  json all() const;
};

/// Prompt and answer, the end token included, as transformers' generate returns them, without padding; of an encoder-decoder the start token and
/// the answer.
std::vector<int32_t> Generated::sequence(size_t i) const {
  std::vector<int32_t> ids;
  if (!reads_source(serving)) ids = answer->prompt(choice(i));
  else if (serving.decoder_start >= 0) ids = {static_cast<int32_t>(serving.decoder_start)};
  const auto said = choice(i).ids();
  ids.insert(ids.end(), said.begin(), said.end());
  return ids;
}

std::string Generated::text(size_t i) const {
  const std::string whole = serving.tokenizer->decode(sequence(i));
  if (request.full_text || reads_source(serving)) return whole;
  const std::string before = serving.tokenizer->decode(answer->prompt(choice(i)));
  return whole.starts_with(before) ? whole.substr(before.size()) : serving.tokenizer->decode(choice(i).ids());
}

json Generated::token(const Choice::Said& said) const {
  const int32_t id = said.token.id;
  json made = {{"id", id}, {"text", said.text}, {"logprob", nullptr}, {"special", false}};
  if (request.details) made["logprob"] = said.token.logprob;
  if (serving.tokenizer && said.text.empty() && serving.tokenizer->decode({&id, 1}).empty()) {
    made["text"] = serving.tokenizer->piece(id);
    made["special"] = true;
  }
  return made;
}

json Generated::details(size_t i, bool tokens) const {
  const Choice& one = choice(i);
  json made = {{"finish_reason", one.stopped_by_text() ? "stop_sequence" : one.finish() == "stop" ? "eos_token" : "length"}, {"generated_tokens", one.said().size()}, {"seed", nullptr}};
  if (request.sampling.do_sample) made["seed"] = request.sampling.seed + one.request();
  if (!tokens) return made;
  made["prefill"] = json::array();
  made["tokens"] = json::array();
  for (const auto& said : one.said()) made["tokens"].push_back(token(said));
  return made;
}

json Generated::result(size_t i) const {
  json made = json::object();
  if (serving.tokenizer) made["generated_text"] = text(i);
  if (!serving.tokenizer || request.return_token_ids) made["sequence"] = sequence(i);
  if (request.search.num_beams > 1) made["score"] = choice(i).score();
  if (request.details) made["details"] = details(i, true);
  return made;
}

/// One result, a list for several sequences of an input, a list of these for several inputs.
json Generated::all() const {
  const auto per_input = static_cast<size_t>(request.search.num_return_sequences);
  json inputs = json::array();
  for (size_t i = 0; i < answer->choices().size(); i += per_input) {
    json several = json::array();
    for (size_t j = 0; j < per_input; ++j) several.push_back(result(i + j));
    inputs.push_back(per_input == 1 ? several[0] : several);
  }
  return request.single ? inputs[0] : inputs;
}

EventShape events(const Generated& generated) {
  EventShape shape;
  shape.done = false;
  shape.piece = [generated, sent = std::make_shared<std::vector<size_t>>(generated.answer->choices().size())](const EventShape::Send& send, size_t i, const std::string&) {
    const Choice& choice = generated.choice(i);
    const bool ended = !choice.finish().empty();
    size_t& next = (*sent)[i];
    const auto event = [&](const json& token, bool last) {
      json body = {{"index", next}, {"token", token}, {"generated_text", nullptr}, {"details", nullptr}};
      if (sent->size() > 1) body["choice"] = i;
      if (last && generated.serving.tokenizer) body["generated_text"] = generated.text(i);
      if (last && generated.request.details) body["details"] = generated.details(i, false);
      return send(body);
    };
    if (ended && next == choice.said().size()) return event(nullptr, true);   // the end came without a token
    while (next < choice.said().size()) {
      const json token = generated.token(choice.said()[next++]);
      if (!event(token, ended && next == choice.said().size())) return false;
    }
    return true;
  };
  return shape;
}

/// Submits what `object` asks for.
Generated submitted(const Serving& serving, const Call& call, const json& object, std::shared_ptr<void> admitted, steady_clock::time_point arrived) {
  Generated generated{serving, parse_generate(object, serving, serving.random()), {}};
  const GenerateRequest& request = generated.request;
  const std::string field = object.contains("inputs") ? "inputs" : "input_ids";
  const bool logprobs = request.details && request.search.num_beams == 1;
  auto requests = engine_requests(serving, call.request.id, tokens_of(serving, request.prompts, field), field, request.asked, request.sampling, request.search, request.length, logprobs ? 0 : -1);
  generated.answer = std::make_shared<Answer>(serving, std::move(requests), request.asked.stop, call.access, std::move(admitted), arrived);
  return generated;
}

}  // namespace

http::Response generate(const Serving& serving, const Call& call) {
  const auto arrived = steady_clock::now();
  auto admitted = serving.admit();
  const json object = task_body(serving, call);
  const Generated generated = submitted(serving, call, object, std::move(admitted), arrived);
  if (generated.request.stream) return event_stream(serving, call, generated.answer, events(generated));
  if (!run_whole(*generated.answer, call, [](size_t, const std::string&) {})) return nobody_there();
  return json_response(generated.all());
}

http::Response generate_text(const Serving& serving, const Call& call) {
  const auto arrived = steady_clock::now();
  auto admitted = serving.admit();
  refuse_unless_served(serving, call);
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model's folder has no tokenizer that is served; send token ids to POST /generate");
  const std::string text = percent_decode(call.rest);
  if (text.empty()) throw ApiError(400, "invalid_value", "the path has no text after /generate_text/; add the text to continue, percent-encoded");
  json object = query_object(call.request.query);
  for (const char* name : {"inputs", "input_ids", "stream", "details", "return_token_ids"})
    if (object.contains(name)) throw ApiError(400, "unknown_field", std::string(name) + " is no parameter of this path; send it to POST /generate", name);
  object["inputs"] = text;
  const Generated generated = submitted(serving, call, object, std::move(admitted), arrived);
  if (!run_whole(*generated.answer, call, [](size_t, const std::string&) {})) return nobody_there();
  json outputs = json::array();
  for (size_t i = 0; i < generated.answer->choices().size(); ++i) outputs.push_back(generated.text(i));
  return json_response({{"inputs", text}, {"outputs", outputs.size() == 1 ? outputs[0] : outputs}});
}

}  // namespace pm::server
