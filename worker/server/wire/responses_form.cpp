// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/responses_form.h"

#include <utility>

#include "worker/server/wire/conversation.h"
#include "worker/server/wire/listed_items.h"
#include "worker/server/wire/wire_event.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Returns log-probabilities whose "bytes" are arrays, as the Responses API has them, also where a token is only a part
/// of a character.
ordered_json logprobs_json(const json& logprobs) {
  ordered_json made = ordered_json::array();
  for (const json& one : logprobs) {
    ordered_json token = one;
    if (token["bytes"].is_null()) token["bytes"] = ordered_json::array();
    for (ordered_json& other : token["top_logprobs"])
      if (other["bytes"].is_null()) other["bytes"] = ordered_json::array();
    made.push_back(std::move(token));
  }
  return made;
}

ordered_json text_part(const ReplyPart& part, bool whole) {
  return {{"type", "output_text"},
          {"text", whole ? part.text : ""},
          {"annotations", ordered_json::array()},
          {"logprobs", whole ? logprobs_json(part.logprobs) : ordered_json::array()}};
}

ordered_json reasoning_part(const ReplyPart& part, bool whole) {
  return {{"type", "reasoning_text"}, {"text", whole ? part.text : ""}};
}

ordered_json usage_json(const TokenUsage& usage) {
  return {{"input_tokens", usage.prompt},
          {"input_tokens_details", {{"cached_tokens", usage.cached}, {"cache_write_tokens", 0}}},
          {"output_tokens", usage.completion},
          {"output_tokens_details", {{"reasoning_tokens", usage.reasoning}}},
          {"total_tokens", usage.prompt + usage.completion}};
}

}  // namespace

std::string ResponsesForm::item_id(size_t index) const {
  static constexpr const char* prefixes[] = {"rs_", "msg_", "fc_", "ctc_"};  // in the order of ReplyPart::Kind
  return prefixes[static_cast<size_t>(parts_.parts().at(index).kind)] + head_.id + "_" + std::to_string(index);
}

/// Returns an output item; with status "in_progress" without what it says.
ResponsesForm::Json ResponsesForm::item(size_t index, const char* status) const {
  const ReplyPart& part = parts_.parts().at(index);
  const bool whole = std::string_view(status) != "in_progress";
  const auto content = [&](Json one) { return whole ? Json::array({std::move(one)}) : Json::array(); };
  switch (part.kind) {
    case ReplyPart::Kind::Reasoning:
      return {{"id", item_id(index)},
              {"type", "reasoning"},
              {"status", status},
              {"summary", Json::array()},
              {"content", content(reasoning_part(part, true))}};
    case ReplyPart::Kind::Text:
      return {{"id", item_id(index)},
              {"type", "message"},
              {"status", status},
              {"role", "assistant"},
              {"content", content(text_part(part, true))}};
    case ReplyPart::Kind::CustomCall:
      return {{"id", item_id(index)},    {"type", "custom_tool_call"}, {"status", status},
              {"call_id", part.call_id}, {"name", part.name},          {"input", whole ? part.text : ""}};
    case ReplyPart::Kind::ToolCall:
      break;
  }
  return {{"id", item_id(index)},    {"type", "function_call"}, {"status", status},
          {"call_id", part.call_id}, {"name", part.name},       {"arguments", whole ? part.text : ""}};
}

const char* ResponsesForm::final_status() const {
  const std::string& reason = parts_.finish_reason();
  return reason == "length" || reason == "content_filter" ? "incomplete" : "completed";
}

ResponsesForm::Json ResponsesForm::response(const char* status) const {
  Json made = {{"id", head_.id},
               {"object", "response"},
               {"created_at", head_.created_at},
               {"status", status},
               {"background", false},
               {"error", nullptr},
               {"incomplete_details", nullptr},
               {"instructions", nullptr},
               {"max_output_tokens", nullptr},
               {"model", head_.model},
               {"output", Json::array()},
               {"parallel_tool_calls", true},
               {"previous_response_id", nullptr},
               {"temperature", nullptr},
               {"tool_choice", "auto"},
               {"tools", Json::array()},
               {"top_p", nullptr},
               {"usage", nullptr}};
  made.update(head_.request.settings);
  return made;
}

/// Returns the finished response, and hands it on.
ResponsesForm::Json ResponsesForm::finish() {
  const std::string status = final_status();
  Json made = response(status.c_str());
  const size_t count = parts_.parts().size();
  for (size_t i = 0; i < count; ++i) made["output"].push_back(item(i, i + 1 == count ? status.c_str() : "completed"));
  if (status == "incomplete")
    made["incomplete_details"] = {
        {"reason", parts_.finish_reason() == "length" ? "max_output_tokens" : "content_filter"}};
  made["usage"] = usage_json(parts_.usage());
  if (!finished_) return made;
  Conversation conversation(head_.request.conversation);
  conversation.begin("assistant");
  for (const ReplyPart& part : parts_.parts()) {
    if (part.kind == ReplyPart::Kind::Reasoning)
      conversation.add_reasoning(part.text);
    else if (part.kind == ReplyPart::Kind::Text)
      conversation.add_text("assistant", part.text);
    else if (part.kind == ReplyPart::Kind::CustomCall)
      conversation.add_custom_call(part.call_id, part.name, part.text);
    else
      conversation.add_call(part.call_id, part.name, part.text);
  }
  Json items = head_.request.items;
  assign_item_ids(items, head_.id);
  finished_(head_.id, {json_text(made), json_text(conversation.messages()), json_text(items)});
  return made;
}

std::string ResponsesForm::reply(const json& completion) {
  parts_.take(completion, nullptr);
  return json_text(finish());
}

void ResponsesForm::emit(const char* type, Json fields) {
  Json event = {{"type", type}, {"sequence_number", sequence_++}};
  event.update(fields);
  events_ += event_text(event);
}

/// Emits an event about the only content part of an item.
void ResponsesForm::emit_part(const char* type, size_t index, Json fields) {
  Json made = {{"item_id", item_id(index)}, {"output_index", index}, {"content_index", 0}};
  made.update(fields);
  emit(type, std::move(made));
}

std::string ResponsesForm::take_events() { return std::exchange(events_, {}); }

std::string ResponsesForm::events(const json& chunk) {
  if (!std::exchange(started_, true)) {
    emit("response.created", {{"response", response("in_progress")}});
    emit("response.in_progress", {{"response", response("in_progress")}});
  }
  parts_.take(chunk, this);
  return take_events();
}

std::string ResponsesForm::end() {
  ending_ = true;
  parts_.finish(this);
  const std::string status = final_status();
  emit(("response." + status).c_str(), {{"response", finish()}});
  return take_events();
}

std::string ResponsesForm::failure(const ApiError& error, const std::string&) {
  Json failed = response("failed");
  failed["error"] = {{"code", error.status < 500 ? "invalid_prompt" : "server_error"},
                     {"message", error.code + ": " + error.what()}};
  emit("response.failed", {{"response", std::move(failed)}});
  return take_events();
}

void ResponsesForm::begin(size_t index, const ReplyPart& part) {
  emit("response.output_item.added", {{"output_index", index}, {"item", item(index, "in_progress")}});
  if (part.kind == ReplyPart::Kind::Text)
    emit_part("response.content_part.added", index, {{"part", text_part(part, false)}});
  else if (part.kind == ReplyPart::Kind::Reasoning)
    emit_part("response.content_part.added", index, {{"part", reasoning_part(part, false)}});
}

void ResponsesForm::append(size_t index, const ReplyPart& part, const std::string& piece, const json& logprobs) {
  if (part.kind == ReplyPart::Kind::Text)
    emit_part("response.output_text.delta", index, {{"delta", piece}, {"logprobs", logprobs_json(logprobs)}});
  else if (part.kind == ReplyPart::Kind::Reasoning)
    emit_part("response.reasoning_text.delta", index, {{"delta", piece}});
  else
    emit(part.kind == ReplyPart::Kind::CustomCall ? "response.custom_tool_call_input.delta"
                                                  : "response.function_call_arguments.delta",
         {{"item_id", item_id(index)}, {"output_index", index}, {"delta", piece}});
}

void ResponsesForm::end(size_t index, const ReplyPart& part) {
  if (part.kind == ReplyPart::Kind::Text) {
    emit_part("response.output_text.done", index, {{"text", part.text}, {"logprobs", logprobs_json(part.logprobs)}});
    emit_part("response.content_part.done", index, {{"part", text_part(part, true)}});
  } else if (part.kind == ReplyPart::Kind::Reasoning) {
    emit_part("response.reasoning_text.done", index, {{"text", part.text}});
    emit_part("response.content_part.done", index, {{"part", reasoning_part(part, true)}});
  } else if (part.kind == ReplyPart::Kind::CustomCall) {
    emit("response.custom_tool_call_input.done",
         {{"item_id", item_id(index)}, {"output_index", index}, {"input", part.text}});
  } else {
    emit("response.function_call_arguments.done",
         {{"item_id", item_id(index)}, {"output_index", index}, {"name", part.name}, {"arguments", part.text}});
  }
  emit("response.output_item.done",
       {{"output_index", index}, {"item", item(index, ending_ ? final_status() : "completed")}});
}

}  // namespace pm::server
