// SPDX-License-Identifier: Apache-2.0
// Divides a chat completion, whole or in chunks, into the parts of which other wire forms consist.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace pm::server {

struct ReplyPart {
  enum class Kind : uint8_t { Reasoning, Text, ToolCall, CustomCall };
  Kind kind = Kind::Text;
  std::string text;  ///< so far: reasoning, text, the arguments of the call as JSON text, or a custom call's input
  std::string call_id, name;
  bool is_call() const { return kind == Kind::ToolCall || kind == Kind::CustomCall; }
  nlohmann::json logprobs = nlohmann::json::array();  ///< of a text, as chat completions have them
};

/// Receives the parts of a reply as they come, one after the other.
class PartSink {
 public:
  virtual ~PartSink() = default;
  virtual void begin(size_t index, const ReplyPart&) = 0;
  /// `piece` has been appended to the part's text, and `logprobs` to its log-probabilities.
  virtual void append(size_t index, const ReplyPart&, const std::string& piece, const nlohmann::json& logprobs) = 0;
  virtual void end(size_t index, const ReplyPart&) = 0;
};

struct TokenUsage {
  int64_t prompt = 0, cached = 0, completion = 0, reasoning = 0;
};

class ReplyParts {
 public:
  /// Takes a chat.completion or a chat.completion.chunk. Only its first choice counts. `sink` may be nullptr.
  void take(const nlohmann::json& body, PartSink* sink);
  /// Ends the last part.
  void finish(PartSink* sink);

  const std::vector<ReplyPart>& parts() const { return parts_; }
  /// "stop", "length", "tool_calls", "content_filter", or "" before the end.
  const std::string& finish_reason() const { return finish_reason_; }
  /// The stop string that ended the reply, or "".
  const std::string& stop_text() const { return stop_text_; }
  const TokenUsage& usage() const { return usage_; }

 private:
  void take_calls(const nlohmann::json& calls, PartSink*);
  void begin(ReplyPart part, PartSink*);
  void append(const std::string& piece, PartSink*);

  std::vector<ReplyPart> parts_;
  bool open_ = false;                                  ///< the last part has not ended
  int64_t call_ = -1;                                  ///< index of the call that is open
  std::set<int64_t> calls_;                            ///< indices of the calls that have started
  nlohmann::json logprobs_ = nlohmann::json::array();  ///< of tokens without text so far
  std::string finish_reason_, stop_text_;
  TokenUsage usage_;
};

}  // namespace pm::server
