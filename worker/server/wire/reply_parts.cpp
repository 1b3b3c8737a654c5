// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/reply_parts.h"

#include <stdexcept>
#include <utility>

namespace pm::server {
namespace {

using nlohmann::json;

/// Returns a string of an object; "" where it is absent or null.
std::string text_of(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

TokenUsage read_usage(const json& usage) {
  TokenUsage read{.prompt = usage.value("prompt_tokens", int64_t{0}),
                  .completion = usage.value("completion_tokens", int64_t{0})};
  if (const auto details = usage.find("prompt_tokens_details"); details != usage.end() && details->is_object())
    read.cached = details->value("cached_tokens", int64_t{0});
  if (const auto details = usage.find("completion_tokens_details"); details != usage.end() && details->is_object())
    read.reasoning = details->value("reasoning_tokens", int64_t{0});
  return read;
}

}  // namespace

void ReplyParts::begin(ReplyPart part, PartSink* sink) {
  finish(sink);
  parts_.push_back(std::move(part));
  open_ = true;
  if (sink) sink->begin(parts_.size() - 1, parts_.back());
}

void ReplyParts::append(const std::string& piece, PartSink* sink) {
  if (piece.empty()) return;
  ReplyPart& part = parts_.back();
  part.text += piece;
  const json logprobs =
      part.kind == ReplyPart::Kind::Text ? std::exchange(logprobs_, json::array()) : json(json::array());
  part.logprobs.insert(part.logprobs.end(), logprobs.begin(), logprobs.end());
  if (sink) sink->append(parts_.size() - 1, part, piece, logprobs);
}

void ReplyParts::finish(PartSink* sink) {
  if (std::exchange(open_, false) && sink) sink->end(parts_.size() - 1, parts_.back());
}

void ReplyParts::take_calls(const json& calls, PartSink* sink) {
  for (size_t i = 0; i < calls.size(); ++i) {
    const json& call = calls[i];
    const auto index = call.value("index", static_cast<int64_t>(i));
    const bool is_custom = call.contains("custom");
    const json called = call.value(is_custom ? "custom" : "function", json::object());
    if (!open_ || !parts_.back().is_call() || call_ != index) {
      if (!calls_.insert(index).second) throw std::logic_error("a piece of a tool call comes after the call has ended");
      call_ = index;
      begin({.kind = is_custom ? ReplyPart::Kind::CustomCall : ReplyPart::Kind::ToolCall,
             .text = {},
             .call_id = text_of(call, "id"),
             .name = text_of(called, "name")},
            sink);
    }
    append(text_of(called, is_custom ? "input" : "arguments"), sink);
  }
}

void ReplyParts::take(const json& body, PartSink* sink) {
  if (const auto usage = body.find("usage"); usage != body.end() && usage->is_object()) usage_ = read_usage(*usage);
  const auto choices = body.find("choices");
  if (choices == body.end() || choices->empty()) return;
  const json& choice = choices->front();
  const json& message = choice.contains("delta") ? choice["delta"] : choice["message"];
  if (const auto logprobs = choice.find("logprobs"); logprobs != choice.end() && logprobs->is_object())
    for (const json& one : logprobs->value("content", json::array())) logprobs_.push_back(one);
  const auto add = [&](ReplyPart::Kind kind, const std::string& piece) {
    if (piece.empty()) return;
    if (!open_ || parts_.back().kind != kind) begin({.kind = kind}, sink);
    append(piece, sink);
  };
  const std::string reasoning = text_of(message, "reasoning_content");  // the same text has two names
  add(ReplyPart::Kind::Reasoning, reasoning.empty() ? text_of(message, "reasoning") : reasoning);
  add(ReplyPart::Kind::Text, text_of(message, "content"));
  if (const auto calls = message.find("tool_calls"); calls != message.end() && calls->is_array())
    take_calls(*calls, sink);
  if (const std::string reason = text_of(choice, "finish_reason"); !reason.empty()) {
    finish_reason_ = reason;
    stop_text_ = text_of(choice, "stop_reason");
  }
}

}  // namespace pm::server
