// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/chat.h"

#include "worker/server/generation/chat_request.h"
#include "worker/server/generation/engine_requests.h"
#include "worker/server/generation/event_stream.h"
#include "worker/server/generation/generation_defaults.h"
#include "worker/server/generation/openai_reply.h"
#include "worker/server/generation/output_processor.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/json_response.h"
#include "worker/server/images/prompt_images.h"
#include "worker/server/replies/chat_message.h"
#include "worker/server/serving/unknown_fields.h"

namespace pm::server {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

/// Builds the reply of one chat completion in OpenAI's format.
struct ChatReply {
  const ServerContext& context;
  std::string id;
  int64_t created = 0;
  std::string model;  ///< its name in replies
  bool with_ids = false, with_usage = false, with_logprobs = false;
  int64_t prompt_logprobs = -1;
  std::shared_ptr<ChatForm> form;  ///< absent: OpenAI's chat completions
  std::shared_ptr<OutputProcessor> output;
  std::shared_ptr<std::vector<ChatMessage>> messages;  ///< of the choices

  json envelope(const char* object) const {
    return {{"id", "chatcmpl-" + id},
            {"object", object},
            {"created", created},
            {"model", model},
            {"choices", json::array()}};
  }

  /// Returns one element of "choices". `content` is stored under `name` ("message" or "delta"). Log-probabilities and
  /// ids cover the tokens from index `from` on.
  json choice_json(size_t index, const char* name, const json& content, size_t from, bool last) const {
    const Choice& choice = output->choices()[index];
    json made = {{"index", index}, {name, content}, {"logprobs", nullptr}, {"finish_reason", nullptr}};
    if (last) made["finish_reason"] = (*messages)[index].finish_reason(choice.finish());
    if (last && form) made["stop_reason"] = choice.stopped_by_text() ? json(choice.stop_text()) : json(nullptr);
    if (with_logprobs && from < choice.tokens().size())
      made["logprobs"] = chat_logprobs(context.tokenizer, choice, from);
    if (with_ids) made["token_ids"] = choice.ids(from);
    return made;
  }
};

http::Response full_response(const ChatReply& chat, const RoutedRequest& call) {
  OutputProcessor& output = *chat.output;
  std::vector<ChatMessage>& messages = *chat.messages;
  if (!run_to_completion(output, call, [&](size_t choice, const std::string& text) {
        messages[choice].add(text, !output.choices()[choice].finish().empty());
      }))
    return client_gone_response();
  json body = chat.envelope("chat.completion");
  for (size_t i = 0; i < messages.size(); ++i)
    body["choices"].push_back(chat.choice_json(i, "message", messages[i].to_json(), 0, true));
  if (const auto& scored = output.scored_prompt(output.choices().front()); scored && chat.prompt_logprobs >= 0)
    body["prompt_logprobs"] =
        prompt_logprobs(chat.context.tokenizer, *scored, static_cast<size_t>(chat.prompt_logprobs));
  body["usage"] = usage_json(output);
  if (!chat.form) return json_response(body);
  http::Response response;
  response.body = chat.form->reply(body);
  return response;
}

StreamFormat stream_format(const ChatReply& chat) {
  StreamFormat format;
  format.form = chat.form;
  const auto emit = [chat](const StreamFormat::Send& send, const json& choice) {
    json body = chat.envelope("chat.completion.chunk");
    body["choices"].push_back(choice);
    if (chat.with_usage) body["usage"] = nullptr;
    return send(body);
  };
  format.on_start = [chat, emit](const StreamFormat::Send& send) {  // the first chunk carries the role alone
    for (size_t i = 0; i < chat.output->choices().size(); ++i)
      if (!emit(send,
                chat.choice_json(i, "delta", {{"role", "assistant"}, {"content", ""}, {"refusal", nullptr}}, 0, false)))
        return false;
    return true;
  };
  format.on_text = [chat, emit, sent = std::make_shared<std::vector<size_t>>(chat.output->choices().size())](
                       const StreamFormat::Send& send, size_t i, const std::string& text) {
    const Choice& choice = chat.output->choices()[i];
    std::vector<json> deltas = (*chat.messages)[i].add(text, !choice.finish().empty());
    if (deltas.empty() && (chat.with_ids || chat.with_logprobs) && (*sent)[i] < choice.tokens().size())
      deltas.push_back({{"content", ""}});
    for (const json& delta : deltas) {  // the first has the tokens of all
      const size_t from = std::exchange((*sent)[i], choice.tokens().size());
      if (!emit(send, chat.choice_json(i, "delta", delta, from, false))) return false;
    }
    return choice.finish().empty() ||
           emit(send, chat.choice_json(i, "delta", json::object(), choice.tokens().size(), true));
  };
  if (chat.with_usage) {
    format.on_end = [chat](const StreamFormat::Send& send) {
      json body = chat.envelope("chat.completion.chunk");
      body["usage"] = usage_json(*chat.output);
      return send(body);
    };
  }
  return format;
}

struct RenderedPrompt {
  std::string text;
  std::vector<int32_t> ids;
  std::vector<PromptImageFile> files;
  std::vector<PlacedImage> images;  ///< without rows
};

/// Renders the conversation. The template writes the special tokens, so the tokenizer adds none.
RenderedPrompt render_prompt(const ServerContext& context, const ChatRequest& request) {
  if (!context.tokenizer)
    throw ApiError(400, "no_tokenizer",
                   "this model's folder has no tokenizer that is served; send token ids to POST /v1/completions");
  if (!context.chat_template)
    throw ApiError(400, "no_chat_template",
                   "the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): "
                   "it is not a chat model, or the file is missing. "
                   "Send the whole prompt as text to POST /v1/completions, or add the template to the model's folder "
                   "and restart the server");
  const std::string now = "{\"now\":" + std::to_string(context.unix_time()) + ",";
  RenderedPrompt prompt{.text = context.chat_template->render(now + request.conversation.substr(1)),
                        .ids = {},
                        .files = {},
                        .images = {}};
  const bool images = !request.images.empty();
  if (images) prompt.files = read_prompt_images(context, request.images);
  prompt.ids =
      context.tokenizer->encode(images ? spell_images(context, prompt.files, prompt.text) : prompt.text, false);
  if (prompt.ids.empty())
    throw ApiError(400, "invalid_value", "messages has 0 tokens; at least one token is required", "messages");
  if (images) prompt.images = find_images(context, prompt.files, prompt.ids);
  return prompt;
}

/// Returns the messages of the choices, which have read the prompt.
std::vector<ChatMessage> begin_messages(const ServerContext& context, const ChatRequest& request,
                                        const std::string& prompt) {
  const auto make_id = [&context] { return tool_call_id(context.random()); };
  const std::string tools = request.tools.tools.dump();
  std::vector<ChatMessage> messages;
  for (int64_t i = 0; i < request.n; ++i) {
    std::optional<ReplyParser> parser;
    if (context.replies) parser = context.replies->begin(prompt, tools, request.tools.calls);
    messages.emplace_back(std::move(parser), make_id, !request.tools.parallel, request.tools.custom);
  }
  return messages;
}

/// Answers the chat completion `body`; `form` may be absent.
http::Response answer(const ServerContext& context, const RoutedRequest& call, std::string_view body,
                      UnknownFields& unknown, std::shared_ptr<ChatForm> form) {
  const auto arrived = steady_clock::now();
  auto admitted = context.admit();
  refuse_unless_served(context, call);
  ChatRequest request = parse_chat(body, context.names, context.content_form, unknown);
  const engine::SamplingParams sampling =
      make_sampling(request.params, context.defaults.config.sampling, context.random(), context.tokenizer);
  const auto requested = request.params.values.get(&engine::GenerationConfig::max_new_tokens);
  LengthLimits length{.field = "max_completion_tokens"};
  (form ? length.default_max_new_tokens : length.max_new_tokens) = requested;
  const engine::SearchParams search{.num_return_sequences = request.n};
  RenderedPrompt prompt = render_prompt(context, request);
  auto messages = begin_messages(context, request, prompt.text);
  request.params.constraint =
      reply_constraint(context, request.tools, request.params.constraint, prompt.text, messages.front().is_reasoning());
  auto requests = make_engine_requests(context, call.request.id, {{std::move(prompt.ids), {}}}, "messages",
                                       request.params, sampling, search, length, request.logprobs);
  if (!prompt.images.empty()) {
    fill_image_rows(context, call, prompt.files, prompt.images);
    for (PlacedImage& image : prompt.images)
      requests.front().images.insert(requests.front().images.end(), image.parts.begin(), image.parts.end());
  }
  ChatReply chat{.context = context,
                 .id = call.request.id,
                 .created = context.unix_time(),
                 .model = request.params.adapter ? request.params.adapter->name : context.names.first(),
                 .with_ids = request.return_token_ids,
                 .with_usage = request.include_usage,
                 .with_logprobs = request.logprobs >= 0,
                 .prompt_logprobs = request.prompt_logprobs,
                 .form = std::move(form),
                 .output = {},
                 .messages = std::make_shared<std::vector<ChatMessage>>(std::move(messages))};
  chat.output = std::make_shared<OutputProcessor>(context, std::move(requests), request.params.stop, call.access,
                                                  std::move(admitted), arrived);
  if (context.replies) chat.output->mark_special_tokens();
  if (chat.form) chat.form->begin(chat.output->prompt_tokens());
  if (!request.stream) return full_response(chat, call);
  return event_stream(context, call, chat.output, stream_format(chat));
}

}  // namespace

http::Response create_chat_completion(const ServerContext& context, const RoutedRequest& call) {
  UnknownFields unknown(context.strict_requests);
  http::Response response = answer(context, call, call.request.body, unknown, nullptr);
  unknown.report(call, response);
  return response;
}

http::Response complete_chat(const ServerContext& context, const RoutedRequest& call, std::string_view body,
                             std::shared_ptr<ChatForm> form) {
  UnknownFields none(true);
  return answer(context, call, body, none, std::move(form));
}

int64_t count_chat_tokens(const ServerContext& context, std::string_view body) {
  UnknownFields none(true);
  return static_cast<int64_t>(
      render_prompt(context, parse_chat(body, context.names, context.content_form, none)).ids.size());
}

}  // namespace pm::server
