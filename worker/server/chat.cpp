// See chat.h.
#include "worker/server/chat.h"

#include "worker/server/answer.h"
#include "worker/server/api_error.h"
#include "worker/server/chat_request.h"
#include "worker/server/engine_requests.h"
#include "worker/server/event_stream.h"
#include "worker/server/openai.h"
#include "worker/server/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

/// One conversation's answer in OpenAI's words.
struct Chat {
  const Serving& serving;
  std::string id;
  int64_t created = 0;
  bool with_ids = false, with_usage = false, with_logprobs = false;
  std::shared_ptr<Answer> answer;

  json envelope(const char* object) const {
    return {{"id", "chatcmpl-" + id}, {"object", object}, {"created", created}, {"model", serving.model}, {"choices", json::array()}};
  }

  /// `words`: the "message" or "delta"; with the tokens from `from` on.
  json choice_json(size_t index, const char* name, const json& words, size_t from, bool last) const {
    const Choice& choice = answer->choices()[index];
    json made = {{"index", index}, {name, words}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (last) made["finish_reason"] = choice.finish();
    if (with_logprobs && from < choice.said().size()) made["logprobs"] = chat_logprobs(serving.tokenizer, choice, from);
    if (with_ids) made["token_ids"] = choice.ids(from);
    return made;
  }
};

http::Response whole(const Chat& chat, const Call& call) {
  Answer& answer = *chat.answer;
  std::vector<std::string> texts(answer.choices().size());
  if (!run_whole(answer, call, [&](size_t choice, const std::string& text) { texts[choice] += text; })) return nobody_there();
  json body = chat.envelope("chat.completion");
  for (size_t i = 0; i < texts.size(); ++i)
    body["choices"].push_back(chat.choice_json(i, "message", {{"role", "assistant"}, {"content", texts[i]}, {"refusal", nullptr}}, 0, true));
  body["usage"] = usage_json(answer);
  return json_response(body);
}

EventShape events(const Chat& chat) {
  EventShape shape;
  const auto emit = [chat](const EventShape::Send& send, const json& choice) {
    json body = chat.envelope("chat.completion.chunk");
    body["choices"].push_back(choice);
    if (chat.with_usage) body["usage"] = nullptr;
    return send(body);
  };
  shape.begin = [chat, emit](const EventShape::Send& send) {   // who speaks, before there is a word
    for (size_t i = 0; i < chat.answer->choices().size(); ++i)
      if (!emit(send, chat.choice_json(i, "delta", {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}, 0, false))) return false;
    return true;
  };
  shape.piece = [chat, emit, sent = std::make_shared<std::vector<size_t>>(chat.answer->choices().size())](const EventShape::Send& send, size_t i, const std::string& text) {
    const Choice& choice = chat.answer->choices()[i];
    if (!text.empty() || ((chat.with_ids || chat.with_logprobs) && (*sent)[i] < choice.said().size())) {
      const size_t from = std::exchange((*sent)[i], choice.said().size());
      if (!emit(send, chat.choice_json(i, "delta", {{"content", text}}, from, false))) return false;
    }
    return choice.finish().empty() || emit(send, chat.choice_json(i, "delta", json::object(), choice.said().size(), true));
  };
  if (chat.with_usage) {
    shape.end = [chat](const EventShape::Send& send) {
      json body = chat.envelope("chat.completion.chunk");
      body["usage"] = usage_json(*chat.answer);
      return send(body);
    };
  }
  return shape;
}

/// The conversation as tokens. The template writes special tokens itself, so the tokenizer adds none.
std::vector<int32_t> prompt_of(const Serving& serving, const ChatRequest& request) {
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model's folder has no tokenizer that is served; send token ids to POST /v1/completions");
  if (!serving.chat_template)
    throw ApiError(400, "no_chat_template", "the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): it was not trained to converse, or the file is missing. "
                                            "Send the whole prompt as text to POST /v1/completions, or add the template to the model's folder and start again");
  const std::string now = "{\"now\":" + std::to_string(serving.unix_time()) + ",";
  auto ids = serving.tokenizer->encode(serving.chat_template->render(now + request.conversation.substr(1)), false);
  if (ids.empty()) throw bad_field("messages", "a conversation of no tokens", "at least one token");
  return ids;
}

}  // namespace

http::Response create_chat_completion(const Serving& serving, const Call& call) {
  const auto arrived = steady_clock::now();
  auto admitted = serving.admit();
  refuse_unless_served(serving, call);
  const ChatRequest request = parse_chat(call.request.body, serving.model);
  const engine::Sampling sampling = sampling_of(request.asked, serving.defaults.sampling, serving.random(), serving.tokenizer);
  const Length length{.field = "max_completion_tokens", .new_tokens = request.asked.max_new_tokens};
  const engine::Search search{.num_return_sequences = request.n};
  auto requests = engine_requests(serving, call.request.id, {prompt_of(serving, request)}, "messages", request.asked, sampling, search, length, request.logprobs);
  Chat chat{.serving = serving, .id = call.request.id, .created = serving.unix_time(), .with_ids = request.return_token_ids, .with_usage = request.include_usage,
            .with_logprobs = request.logprobs >= 0, .answer = {}};
  chat.answer = std::make_shared<Answer>(serving, std::move(requests), request.asked.stop, call.access, std::move(admitted), arrived);
  if (!request.stream) return whole(chat, call);
  return event_stream(serving, call, chat.answer, events(chat));
}

}  // namespace pm::server
