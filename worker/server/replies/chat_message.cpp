// SPDX-License-Identifier: Apache-2.0
#include "worker/server/replies/chat_message.h"

#include <string_view>

namespace pm::server {

using nlohmann::json;

std::string tool_call_id(uint64_t random) {
  constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  std::string id;
  for (int i = 0; i < 9; ++i, random /= alphabet.size()) id += alphabet[random % alphabet.size()];
  return id;
}

json ChatMessage::delta(const ReplyEvent& event) {
  switch (event.kind) {
    case ReplyEvent::Kind::Content:
      content_ += event.text;
      return {{"content", event.text}};
    case ReplyEvent::Kind::Reasoning:
      reasoning_ += event.text;
      return {{"reasoning", event.text}, {"reasoning_content", event.text}};
    case ReplyEvent::Kind::Call:
      return one_call_ && event.call > 0 ? json() : begin_call(event);
    case ReplyEvent::Kind::Arguments:
      break;
  }
  if (one_call_ && event.call > 0) return nullptr;
  if (!input_) return add_arguments(event.call, event.text);
  const std::string input = input_->feed(event.text);
  return input.empty() ? json() : add_arguments(event.call, input);
}

json ChatMessage::begin_call(const ReplyEvent& event) {
  json call = {{"id", make_id_()}};
  if (custom_.contains(event.text)) {
    input_.emplace();
    call.update({{"type", "custom"}, {"custom", {{"name", event.text}, {"input", ""}}}});
  } else {
    call.update({{"type", "function"}, {"function", {{"name", event.text}, {"arguments", ""}}}});
  }
  calls_.push_back(call);
  call["index"] = event.call;
  return {{"tool_calls", json::array({call})}};
}

/// Appends to the arguments of a call, or to the input of a custom one. Returns the delta.
json ChatMessage::add_arguments(size_t call, const std::string& text) {
  json& whole = calls_.at(call);
  const bool is_custom = whole["type"] == "custom";
  const char *kind = is_custom ? "custom" : "function", *name = is_custom ? "input" : "arguments";
  whole[kind][name].get_ref<std::string&>() += text;
  return {{"tool_calls", json::array({{{"index", call}, {kind, {{name, text}}}}})}};
}

/// Ends a custom call. Returns the delta with the rest of its input, or null.
json ChatMessage::end_call() {
  if (!input_) return nullptr;
  const std::string rest = input_->finish();
  input_.reset();
  return rest.empty() ? json() : add_arguments(calls_.size() - 1, rest);
}

std::vector<json> ChatMessage::add(const std::string& text, bool ends) {
  std::vector<json> deltas;
  const auto keep = [&](json made) {
    if (!made.is_null()) deltas.push_back(std::move(made));
  };
  const auto add_all = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events) {
      if (event.kind != ReplyEvent::Kind::Arguments) keep(end_call());
      keep(delta(event));
    }
  };
  if (!parser_) {
    if (!text.empty()) add_all({{ReplyEvent::Kind::Content, 0, text}});
    return deltas;
  }
  add_all(parser_->feed(text));
  if (!ends) return deltas;
  add_all(parser_->finish());
  keep(end_call());
  return deltas;
}

std::string ChatMessage::finish_reason(const std::string& text_finish) const {
  return text_finish == "stop" && !calls_.empty() ? "tool_calls" : text_finish;
}

json ChatMessage::to_json() const {
  json message = {{"role", "assistant"}, {"content", content_}, {"refusal", nullptr}};
  if (content_.empty() && !calls_.empty()) message["content"] = nullptr;
  if (!reasoning_.empty()) message["reasoning"] = message["reasoning_content"] = reasoning_;
  if (!calls_.empty()) message["tool_calls"] = calls_;
  return message;
}

}  // namespace pm::server
