// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/messages_form.h"

#include "worker/server/wire/wire_event.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const char* error_type(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
  }
  return status < 500 ? "invalid_request_error" : "api_error";
}

ordered_json error_json(const ApiError& error, const std::string& request_id) {
  ordered_json inner = {{"type", error_type(error.status)},
                        {"message", error.what()},
                        {"param", error.param.empty() ? ordered_json(nullptr) : ordered_json(error.param)},
                        {"code", error.code}};
  // Anthropic's clients look for this before they send the whole conversation
  if (error.code == "thread_unsupported_request")
    inner["details"] = {{"error_code", error.code}, {"unsupported", ordered_json::array({error.param})}};
  return {{"type", "error"}, {"error", std::move(inner)}, {"request_id", request_id}};
}

/// Returns the arguments of a call as an object. A call that was cut, or that the model wrote wrongly, has its text
/// under INVALID_JSON, as Anthropic's documentation of fine-grained streaming has it.
ordered_json input_of(const ReplyPart& part) {
  if (part.text.empty()) return ordered_json::object();
  ordered_json input = ordered_json::parse(part.text, nullptr, false);
  return input.is_object() ? input : ordered_json{{"INVALID_JSON", part.text}};
}

/// Returns the block of a part; `whole` with what it says.
ordered_json block_of(const ReplyPart& part, bool whole) {
  switch (part.kind) {
    case ReplyPart::Kind::Reasoning:
      return {{"type", "thinking"}, {"thinking", whole ? part.text : ""}, {"signature", ""}};
    case ReplyPart::Kind::Text:
      return {{"type", "text"}, {"text", whole ? part.text : ""}, {"citations", nullptr}};
    case ReplyPart::Kind::ToolCall:
    case ReplyPart::Kind::CustomCall:  // this form has no custom tools
      break;
  }
  return {{"type", "tool_use"},
          {"id", part.call_id},
          {"name", part.name},
          {"input", whole ? input_of(part) : ordered_json::object()}};
}

}  // namespace

MessagesForm::Json MessagesForm::usage() const {
  const TokenUsage& used = parts_.usage();
  const int64_t prompt = used.prompt > 0 ? used.prompt : prompt_tokens_;
  return {{"input_tokens", prompt - used.cached},
          {"cache_creation_input_tokens", 0},
          {"cache_read_input_tokens", used.cached},
          {"output_tokens", used.completion}};
}

std::string MessagesForm::stop_reason() const {
  const std::string& reason = parts_.finish_reason();
  if (reason == "tool_calls") return "tool_use";
  if (reason == "content_filter") return "refusal";
  const TokenUsage& used = parts_.usage();
  if (reason == "length" && used.completion < max_tokens_ && used.prompt + used.completion >= window_)
    return "model_context_window_exceeded";
  if (reason == "length") return "max_tokens";
  return parts_.stop_text().empty() ? "end_turn" : "stop_sequence";
}

MessagesForm::Json MessagesForm::stop_sequence() const {
  return stop_reason() == "stop_sequence" ? Json(parts_.stop_text()) : Json(nullptr);
}

MessagesForm::Json MessagesForm::message(Json content) const {
  return {{"id", id_},
          {"type", "message"},
          {"role", "assistant"},
          {"model", model_},
          {"content", std::move(content)},
          {"stop_reason", nullptr},
          {"stop_sequence", nullptr},
          {"usage", usage()}};
}

std::string MessagesForm::reply(const json& completion) {
  parts_.take(completion, nullptr);
  Json content = Json::array();
  for (const ReplyPart& part : parts_.parts()) content.push_back(block_of(part, true));
  Json made = message(std::move(content));
  made["stop_reason"] = stop_reason();
  made["stop_sequence"] = stop_sequence();
  return json_text(made);
}

std::string MessagesForm::take_events() { return std::exchange(events_, {}); }

std::string MessagesForm::events(const json& chunk) {
  if (!std::exchange(started_, true)) {
    events_ += event_text({{"type", "message_start"}, {"message", message(Json::array())}});
    events_ += event_text({{"type", "ping"}});
  }
  parts_.take(chunk, this);
  return take_events();
}

std::string MessagesForm::end() {
  parts_.finish(this);
  events_ += event_text({{"type", "message_delta"},
                         {"delta", {{"stop_reason", stop_reason()}, {"stop_sequence", stop_sequence()}}},
                         {"usage", usage()}});
  events_ += event_text({{"type", "message_stop"}});
  return take_events();
}

std::string MessagesForm::failure(const ApiError& error, const std::string& request_id) {
  return event_text(error_json(error, request_id));
}

void MessagesForm::begin(size_t index, const ReplyPart& part) {
  events_ += event_text({{"type", "content_block_start"}, {"index", index}, {"content_block", block_of(part, false)}});
}

void MessagesForm::append(size_t index, const ReplyPart& part, const std::string& piece, const json&) {
  Json delta;
  if (part.kind == ReplyPart::Kind::Reasoning)
    delta = {{"type", "thinking_delta"}, {"thinking", piece}};
  else if (part.kind == ReplyPart::Kind::Text)
    delta = {{"type", "text_delta"}, {"text", piece}};
  else
    delta = {{"type", "input_json_delta"}, {"partial_json", piece}};
  events_ += event_text({{"type", "content_block_delta"}, {"index", index}, {"delta", std::move(delta)}});
}

void MessagesForm::end(size_t index, const ReplyPart&) {
  events_ += event_text({{"type", "content_block_stop"}, {"index", index}});
}

std::string messages_error_body(const ApiError& error, const std::string& request_id) {
  return json_text(error_json(error, request_id));
}

}  // namespace pm::server
