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
    case ReplyEvent::Kind::Call: {
      if (one_call_ && event.call > 0) return nullptr;
      json call = {{"id", make_id_()}, {"type", "function"}, {"function", {{"name", event.text}, {"arguments", ""}}}};
      calls_.push_back(call);
      call["index"] = event.call;
      return {{"tool_calls", json::array({call})}};
    }
    case ReplyEvent::Kind::Arguments:
      break;
  }
  if (one_call_ && event.call > 0) return nullptr;
  calls_.at(event.call)["function"]["arguments"].get_ref<std::string&>() += event.text;
  return {{"tool_calls", json::array({{{"index", event.call}, {"function", {{"arguments", event.text}}}}})}};
}

std::vector<json> ChatMessage::add(const std::string& text, bool ends) {
  std::vector<json> deltas;
  const auto add_all = [&](const std::vector<ReplyEvent>& events) {
    for (const ReplyEvent& event : events)
      if (json made = delta(event); !made.is_null()) deltas.push_back(std::move(made));
  };
  if (!parser_) {
    if (!text.empty()) add_all({{ReplyEvent::Kind::Content, 0, text}});
    return deltas;
  }
  add_all(parser_->feed(text));
  if (ends) add_all(parser_->finish());
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
