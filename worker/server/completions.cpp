// See completions.h.
#include "worker/server/completions.h"

#include <nlohmann/json.hpp>

#include "worker/server/answer.h"
#include "worker/server/completion_request.h"
#include "worker/server/engine_requests.h"
#include "worker/server/event_stream.h"
#include "worker/server/openai.h"
#include "worker/server/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

/// max_tokens of a request that does not say, as OpenAI's.
constexpr int64_t kDefaultTokens = 16;

/// One request's answer in OpenAI's words.
struct Completion {
  const Serving& serving;
  std::string id;
  int64_t created = 0;
  bool with_ids = false, with_usage = false;
  int64_t logprobs = -1;
  std::vector<std::string> echoes;             ///< per prompt; empty: none are wanted
  std::shared_ptr<Answer> answer;

  json envelope() const {
    return {{"id", "cmpl-" + id}, {"object", "text_completion"}, {"created", created}, {"model", serving.model}, {"choices", json::array()}};
  }

  std::string echo(const Choice& choice) const { return echoes.empty() ? "" : echoes[choice.request()]; }

  /// With the tokens from `from` on.
  json choice_json(size_t index, const std::string& text, size_t from) const {
    const Choice& choice = answer->choices()[index];
    json made = {{"index", index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (!choice.finish().empty()) made["finish_reason"] = choice.finish();
    if (logprobs >= 0) made["logprobs"] = completion_logprobs(serving.tokenizer, choice, from, 0);
    if (with_ids) made["token_ids"] = choice.ids(from);
    return made;
  }
};

std::vector<std::string> echoes_of(const Serving& serving, const std::vector<Prompt>& prompts) {
  std::vector<std::string> echoes;
  for (const auto& prompt : prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    echoes.push_back(text ? *text : serving.tokenizer ? serving.tokenizer->decode(std::get<std::vector<int32_t>>(prompt)) : "");
  }
  return echoes;
}

http::Response whole(const Completion& completion, const Call& call) {
  Answer& answer = *completion.answer;
  std::vector<std::string> texts;
  for (const Choice& choice : answer.choices()) texts.push_back(completion.echo(choice));
  if (!run_whole(answer, call, [&](size_t choice, const std::string& text) { texts[choice] += text; })) return nobody_there();
  json body = completion.envelope();
  for (size_t i = 0; i < texts.size(); ++i) body["choices"].push_back(completion.choice_json(i, texts[i], 0));
  body["usage"] = usage_json(answer);
  return json_response(body);
}

EventShape events(Completion completion) {
  EventShape shape;
  const auto emit = [completion](const EventShape::Send& send, const json& choice) {
    json body = completion.envelope();
    body["choices"].push_back(choice);
    if (completion.with_usage) body["usage"] = nullptr;
    return send(body);
  };
  if (!completion.echoes.empty()) {
    shape.begin = [completion, emit](const EventShape::Send& send) {
      for (size_t i = 0; i < completion.answer->choices().size(); ++i)
        if (!emit(send, completion.choice_json(i, completion.echo(completion.answer->choices()[i]), 0))) return false;
      return true;
    };
  }
  shape.piece = [completion, emit, sent = std::make_shared<std::vector<size_t>>(completion.answer->choices().size())](const EventShape::Send& send, size_t i, const std::string& text) {
    const Choice& choice = completion.answer->choices()[i];
    if (text.empty() && choice.finish().empty() && !completion.with_ids && completion.logprobs < 0) return true;
    const size_t from = std::exchange((*sent)[i], choice.said().size());
    return emit(send, completion.choice_json(i, text, from));
  };
  if (completion.with_usage) {
    shape.end = [completion](const EventShape::Send& send) {
      json body = completion.envelope();
      body["usage"] = usage_json(*completion.answer);
      return send(body);
    };
  }
  return shape;
}

}  // namespace

http::Response create_completion(const Serving& serving, const Call& call) {
  const auto arrived = steady_clock::now();
  auto admitted = serving.admit();
  refuse_unless_served(serving, call);
  const CompletionRequest request = parse_completion(call.request.body, serving.model);
  const engine::Sampling sampling = sampling_of(request.asked, serving.defaults.sampling, serving.random(), serving.tokenizer);
  const Length length{.field = "max_tokens", .new_tokens = request.asked.max_new_tokens, .otherwise = kDefaultTokens};
  const engine::Search search{.num_return_sequences = request.n};
  auto requests = engine_requests(serving, call.request.id, tokens_of(serving, request.prompts, "prompt"), "prompt", request.asked, sampling, search, length, request.logprobs);
  Completion completion{.serving = serving, .id = call.request.id, .created = serving.unix_time(), .with_ids = request.return_token_ids || !serving.tokenizer,
                        .with_usage = request.include_usage, .logprobs = request.logprobs, .echoes = {}, .answer = {}};
  if (request.echo) completion.echoes = echoes_of(serving, request.prompts);
  completion.answer = std::make_shared<Answer>(serving, std::move(requests), request.asked.stop, call.access, std::move(admitted), arrived);
  if (!request.stream) return whole(completion, call);
  return event_stream(serving, call, completion.answer, events(completion));
}

}  // namespace pm::server
