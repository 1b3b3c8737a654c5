// SPDX-License-Identifier: Apache-2.0
// The assistant's message of a chat completion in OpenAI's format, whole or in pieces.
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "worker/server/replies/custom_tools.h"
#include "worker/tokenizer/reply_form.h"

namespace pm::server {

class ChatMessage {
 public:
  /// Without a parser all text is content. `make_id` returns the id of a tool call; with `one_call` calls after the
  /// first are dropped. Calls of the tools `custom` are custom ones.
  ChatMessage(std::optional<ReplyParser> parser, std::function<std::string()> make_id, bool one_call,
              CustomTools custom = {})
      : parser_(std::move(parser)), make_id_(std::move(make_id)), one_call_(one_call), custom_(std::move(custom)) {}

  /// Returns whether the text so far, that in the prompt included, ends in reasoning.
  bool is_reasoning() const { return parser_ && parser_->is_reasoning(); }
  /// Adds text, the last of the message if it `ends`. Returns the "delta" objects of a stream: {"content"},
  /// {"reasoning", "reasoning_content"} or {"tool_calls"}.
  std::vector<nlohmann::json> add(const std::string& text, bool ends);
  /// Returns the finish reason of a message whose text finished so: "tool_calls" for a complete message with calls.
  std::string finish_reason(const std::string& text_finish) const;
  /// Returns the whole message.
  nlohmann::json to_json() const;

 private:
  nlohmann::json delta(const ReplyEvent&);
  nlohmann::json begin_call(const ReplyEvent&);
  nlohmann::json add_arguments(size_t call, const std::string& text);
  nlohmann::json end_call();

  std::optional<ReplyParser> parser_;
  std::function<std::string()> make_id_;
  bool one_call_;
  CustomTools custom_;
  std::optional<CustomInput> input_;  ///< of the last call, where that is a custom one
  std::string content_, reasoning_;
  nlohmann::json calls_ = nlohmann::json::array();
};

/// Returns an id of a tool call: nine letters and digits, which every chat template takes (Mistral's take no other).
std::string tool_call_id(uint64_t random);

}  // namespace pm::server
