// SPDX-License-Identifier: Apache-2.0
// Writes a chat completion as a message of Anthropic's API, whole or as its server-sent events.
#pragma once
#include <string>

#include "worker/server/generation/chat_form.h"
#include "worker/server/wire/reply_parts.h"

namespace pm::server {

class MessagesForm final : public ChatForm, private PartSink {
 public:
  /// `id` is the request's, `model` the name in the reply, `max_tokens` the limit in the request, `window` the tokens
  /// of prompt and reply that the model holds.
  MessagesForm(const std::string& id, std::string model, int64_t max_tokens, int64_t window)
      : id_("msg_" + id), model_(std::move(model)), max_tokens_(max_tokens), window_(window) {}

  void begin(int64_t prompt_tokens) override { prompt_tokens_ = prompt_tokens; }
  std::string reply(const nlohmann::json& completion) override;
  std::string events(const nlohmann::json& chunk) override;
  std::string end() override;
  std::string failure(const ApiError&, const std::string& request_id) override;

 private:
  using Json = nlohmann::ordered_json;
  Json message(Json content) const;
  Json usage() const;
  std::string stop_reason() const;
  Json stop_sequence() const;
  std::string take_events();
  void begin(size_t index, const ReplyPart&) override;
  void append(size_t index, const ReplyPart&, const std::string& piece, const nlohmann::json& logprobs) override;
  void end(size_t index, const ReplyPart&) override;

  const std::string id_, model_;
  const int64_t max_tokens_, window_;
  int64_t prompt_tokens_ = 0;
  bool started_ = false;
  ReplyParts parts_;
  std::string events_;  ///< that no call has returned yet
};

/// Returns the body of an error in Anthropic's form, {"type": "error", "error": {"type", "message"}, "request_id"}, to
/// which the error's code and field are added.
std::string messages_error_body(const ApiError&, const std::string& request_id);

}  // namespace pm::server
