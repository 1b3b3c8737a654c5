// SPDX-License-Identifier: Apache-2.0
// Another wire form of a chat completion: it writes the reply in place of OpenAI's chat completions.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/server/http/api_error.h"

namespace pm::server {

/// Serves one request: either reply() is called, or events() for each chunk and then end() or failure().
class ChatForm {
 public:
  virtual ~ChatForm() = default;
  /// Called before the first token, with the number of tokens of the prompt.
  virtual void begin(int64_t prompt_tokens) = 0;
  /// Returns the body of the reply that says what a chat.completion says. Its choices also have "stop_reason", the stop
  /// string that ended them or null.
  virtual std::string reply(const nlohmann::json& completion) = 0;
  /// Returns the server-sent events that a chat.completion.chunk adds.
  virtual std::string events(const nlohmann::json& chunk) = 0;
  /// Returns the events that end the stream.
  virtual std::string end() = 0;
  /// Returns the events that end a stream which fails.
  virtual std::string failure(const ApiError&, const std::string& request_id) = 0;
};

}  // namespace pm::server
