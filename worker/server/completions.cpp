// See completions.h.
#include "worker/server/completions.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "worker/server/answer.h"
#include "worker/server/api_error.h"
#include "worker/server/percent.h"
#include "worker/server/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;

std::string dump(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

json envelope(const Serving& serving, const std::string& id, int64_t created) {
  return {{"id", "cmpl-" + id}, {"object", "text_completion"}, {"created", created}, {"model", serving.model}, {"choices", json::array()}};
}

json choice_json(size_t index, const std::string& text, const std::string& finish, const std::vector<int32_t>* ids) {
  json choice = {{"index", index}, {"text", text}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
  if (!finish.empty()) choice["finish_reason"] = finish;
  if (ids) choice["token_ids"] = *ids;
  return choice;
}

json usage_json(const Answer& answer) {
  return {{"prompt_tokens", answer.prompt_tokens()}, {"completion_tokens", answer.completion_tokens()},
          {"total_tokens", answer.prompt_tokens() + answer.completion_tokens()}};
}

/// For the log alone: the status that nginx made common for a client that went away.
http::Response nobody_there() {
  http::Response response;
  response.status = 499;
  response.close = true;
  return response;
}

http::Response whole(const Serving& serving, const Call& call, Answer& answer, bool with_ids) {
  const int64_t created = serving.unix_time();
  std::vector<std::string> texts(answer.choices().size());
  const auto collect = [&](size_t index, const std::string& piece) { texts[index] += piece; return true; };
  if (!answer.run(collect, call.request.client_gone)) return nobody_there();
  json body = envelope(serving, call.request.id, created);
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& choice = answer.choices()[i];
    body["choices"].push_back(choice_json(i, texts[i], choice.finish(), with_ids ? &choice.ids() : nullptr));
  }
  body["usage"] = usage_json(answer);
  http::Response response;
  response.body = dump(body);
  return response;
}

/// Sends the answer as events while it is generated. Runs after the handler, so it owns what it needs.
struct EventStream {
  const Serving& serving;
  std::string id;
  int64_t created;
  bool with_ids, with_usage;
  std::shared_ptr<Answer> answer;

  bool send(http::Stream& stream, const json& body) const { return stream.write("data: " + dump(body) + "\n\n"); }

  void operator()(http::Stream& stream) const {
    std::vector<size_t> sent(answer->choices().size());   // ids already in an event
    const auto piece_event = [&](size_t index, const std::string& piece) {
      const auto& choice = answer->choices()[index];
      if (piece.empty() && choice.finish().empty() && !with_ids) return true;
      json body = envelope(serving, id, created);
      const std::vector<int32_t> ids(choice.ids().begin() + static_cast<ptrdiff_t>(sent[index]), choice.ids().end());
      sent[index] = choice.ids().size();
      body["choices"].push_back(choice_json(index, piece, choice.finish(), with_ids ? &ids : nullptr));
      return send(stream, body);
    };
    try {
      if (!answer->run(piece_event, [&] { return stream.client_gone(); })) return;
      if (with_usage) {
        json body = envelope(serving, id, created);
        body["usage"] = usage_json(*answer);
        send(stream, body);
      }
      stream.write("data: [DONE]\n\n");
    } catch (const std::exception& exception) {
      stream.write("data: " + error_body(as_api_error(exception), id) + "\n\n");
    }
  }
};

int64_t max_tokens_of_query(const std::string& query, int64_t absent) {
  for (const auto& [name, value] : parse_query(query)) {
    if (name != "max_tokens") throw ApiError(400, "unknown_field", name.substr(0, 60) + " is no parameter of this path; allowed: max_tokens", name.substr(0, 60));
    int64_t number = 0;
    const auto result = std::from_chars(value.data(), value.data() + value.size(), number);
    if (result.ec != std::errc() || result.ptr != value.data() + value.size() || number < 1)
      throw bad_field("max_tokens", "\"" + value.substr(0, 60) + "\"", "an integer from 1 up");
    absent = number;
  }
  return absent;
}

}  // namespace

http::Response create_completion(const Serving& serving, const Call& call) {
  auto admitted = serving.admit();
  refuse_unless_served(serving, call);
  const CompletionRequest request = parse_completion(call.request.body, serving.model);
  const bool with_ids = request.return_token_ids || !serving.tokenizer;
  auto answer = std::make_shared<Answer>(serving, request, call.request.id, call.access, std::move(admitted));
  if (!request.stream) return whole(serving, call, *answer, with_ids);
  http::Response response;
  response.content_type = "text/event-stream";
  response.stream = EventStream{serving, call.request.id, serving.unix_time(), with_ids, request.include_usage, std::move(answer)};
  return response;
}

http::Response generate_text(const Serving& serving, const Call& call) {
  auto admitted = serving.admit();
  refuse_unless_served(serving, call);
  if (!serving.tokenizer) throw ApiError(400, "no_tokenizer", "this model's folder has no tokenizer that is served; send token ids to POST /v1/completions");
  const std::string text = percent_decode(call.rest);
  if (text.empty()) throw ApiError(400, "invalid_value", "the path has no text after /generate_text/; add the text to continue, percent-encoded");
  CompletionRequest request;
  request.prompts = {text};
  request.max_tokens = max_tokens_of_query(call.request.query, kDefaultTokens);
  Answer answer(serving, request, call.request.id, call.access, std::move(admitted));
  if (!answer.run([](size_t, const std::string&) { return true; }, call.request.client_gone)) return nobody_there();
  std::vector<int32_t> all = answer.choices()[0].prompt();
  const auto& ids = answer.choices()[0].ids();
  all.insert(all.end(), ids.begin(), ids.end());
  http::Response response;
  response.body = dump({{"inputs", text}, {"outputs", serving.tokenizer->decode(all)}});
  return response;
}

}  // namespace pm::server
