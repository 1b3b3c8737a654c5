// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/conversation.h"

namespace pm::server {

Conversation::Conversation(Json messages) : messages_(std::move(messages)) {
  for (Json& message : messages_) {
    for (const Json& call : message.value("tool_calls", Json::array()))
      tool_names_[call.at("id")] = call.at(call.at("type").get<std::string>()).at("name");
    if (message["role"] == "tool" || message["content"].is_array()) continue;
    const std::string text = message["content"].is_string() ? message["content"].get<std::string>() : "";
    message["content"] = Json::array();
    if (!text.empty()) message["content"].push_back({{"type", "text"}, {"text", text}});
  }
}

void Conversation::begin(const std::string& role) { messages_.push_back({{"role", role}, {"content", Json::array()}}); }

Conversation::Json& Conversation::turn(const std::string& role) {
  if (messages_.empty() || messages_.back()["role"] != role) begin(role);
  return messages_.back();
}

void Conversation::add_text(const std::string& role, const std::string& text) {
  turn(role)["content"].push_back({{"type", "text"}, {"text", text}});
}

void Conversation::add_image(const std::string& role, const std::string& url) {
  turn(role)["content"].push_back({{"type", "image_url"}, {"image_url", {{"url", url}}}});
}

void Conversation::add_reasoning(const std::string& text) {
  Json& message = turn("assistant");
  message["reasoning_content"] = message.value("reasoning_content", "") + text;
}

void Conversation::add_call(const std::string& id, const std::string& name, Json arguments) {
  tool_names_[id] = name;
  Json& message = turn("assistant");
  message["tool_calls"].push_back(
      {{"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
}

void Conversation::add_custom_call(const std::string& id, const std::string& name, const std::string& input) {
  tool_names_[id] = name;
  Json& message = turn("assistant");
  message["tool_calls"].push_back({{"id", id}, {"type", "custom"}, {"custom", {{"name", name}, {"input", input}}}});
}

void Conversation::add_result(const std::string& call_id, const std::string& text) {
  Json message = {{"role", "tool"}, {"tool_call_id", call_id}, {"content", text}};
  if (const auto name = tool_names_.find(call_id); name != tool_names_.end()) message["name"] = name->second;
  messages_.push_back(std::move(message));
}

bool Conversation::ends_with_answer() const {
  return !messages_.empty() && messages_.back()["role"] == "assistant" && !messages_.back().contains("tool_calls");
}

Conversation::Json Conversation::messages() const {
  Json made = messages_;
  for (Json& message : made) {
    Json& content = message["content"];
    if (!content.is_array()) continue;
    if (content.size() == 1 && content[0]["type"] == "text")
      content = Json(content[0]["text"]);
    else if (content.empty() && message.contains("tool_calls"))
      message.erase("content");
    else if (content.empty())
      content = "";
  }
  return made;
}

}  // namespace pm::server
