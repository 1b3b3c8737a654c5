// SPDX-License-Identifier: Apache-2.0
// Writes a chat completion as a response of OpenAI's Responses API, whole or as its server-sent events.
#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "worker/server/generation/chat_form.h"
#include "worker/server/wire/reply_parts.h"
#include "worker/server/wire/response_store.h"
#include "worker/server/wire/responses_request.h"

namespace pm::server {

/// The parts of a response that are known before it is generated.
struct ResponseHead {
  std::string id;  ///< of the response; those of its items follow from it
  std::string model;
  int64_t created_at = 0;  ///< seconds
  ResponsesRequest request;
};

class ResponsesForm final : public ChatForm, private PartSink {
 public:
  /// Gets the finished response, which is not called for one that failed.
  using Finished = std::function<void(const std::string& id, StoredResponse)>;
  /// `finished` may be absent.
  ResponsesForm(ResponseHead head, Finished finished) : head_(std::move(head)), finished_(std::move(finished)) {}

  void begin(int64_t) override {}
  std::string reply(const nlohmann::json& completion) override;
  std::string events(const nlohmann::json& chunk) override;
  std::string end() override;
  std::string failure(const ApiError&, const std::string& request_id) override;

 private:
  using Json = nlohmann::ordered_json;
  std::string item_id(size_t index) const;
  Json item(size_t index, const char* status) const;
  Json response(const char* status) const;
  const char* final_status() const;
  Json finish();
  void emit(const char* type, Json fields);
  void emit_part(const char* type, size_t index, Json fields);
  std::string take_events();
  void begin(size_t index, const ReplyPart&) override;
  void append(size_t index, const ReplyPart&, const std::string& piece, const nlohmann::json& logprobs) override;
  void end(size_t index, const ReplyPart&) override;

  const ResponseHead head_;
  const Finished finished_;
  bool started_ = false, ending_ = false;
  int64_t sequence_ = 0;  ///< number of the next event
  ReplyParts parts_;
  std::string events_;  ///< that no call has returned yet
};

}  // namespace pm::server
