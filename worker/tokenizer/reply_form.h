// SPDX-License-Identifier: Apache-2.0
// Replies of chat models: parses what a model generates into content, reasoning and tool calls, by the checkpoint's own
// response template or by the form of its family (worker/tokenizer/ffi/src/reply).
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/tokenizer/tokenizer.h"

namespace pm {

/// One more part of a message.
struct ReplyEvent {
  enum class Kind : uint8_t { Content, Reasoning, Call, Arguments };
  Kind kind = Kind::Content;
  size_t call = 0;   ///< index of the tool call
  std::string text;  ///< the name of a call that begins; else text that follows the text before
};

/// Parses one reply while it is generated. However its text is cut into pieces, the events give the same message. Text
/// that is no call and no reasoning is content.
class ReplyParser {
 public:
  /// Stands before and behind the text of a special token, which delimits parts of a reply and is never shown.
  static constexpr char special_mark = '\xFF';

  /// Reads more of the reply.
  std::vector<ReplyEvent> feed(std::string_view text) { return read(text, false); }
  /// Ends the reply; what is open closes.
  std::vector<ReplyEvent> finish() { return read({}, true); }
  /// Returns whether the text so far ends in reasoning.
  bool is_reasoning() const;

 private:
  friend class ReplyForm;
  explicit ReplyParser(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  std::vector<ReplyEvent> read(std::string_view text, bool ends);
  std::shared_ptr<void> handle_;
};

/// Parses and constrains the replies of a model. Serves any number of threads; copies share it.
class ReplyForm {
 public:
  /// Opens `response_template` of the folder's tokenizer_config.json, else the form with the name `family`, which may
  /// be empty. Returns nothing where there is neither. `problem` gets the reason why a response template is not used.
  /// Throws Error{UnsupportedPolicy} for a name that no form has.
  static std::optional<ReplyForm> find(const std::filesystem::path& folder, const std::string& family,
                                       std::string* problem);
  /// Begins to parse the reply to `prompt`, which may have its beginning, such as "<think>". `tools`: those of the
  /// request in JSON, or nothing. `calls`: tool calls are parsed; else they are content.
  ReplyParser begin(std::string_view prompt, std::string_view tools, bool calls) const;
  /// Returns the text of a constraint of kind Reply. `request` is a JSON object: {"prompt", "reasoning": the prompt
  /// ends in reasoning}, with {"kind", "text"} of a constraint that the answer follows, with {"tools", "parallel"} of
  /// which the reply calls some, or with both for one of them. Throws Error{InvalidRequest} with the reason why it
  /// cannot be held.
  std::string grammar(const Tokenizer&, std::string_view request) const;

 private:
  explicit ReplyForm(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<void> handle_;
};

}  // namespace pm
