// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/responses_request.h"

#include <algorithm>

#include "worker/server/http/api_error.h"
#include "worker/server/replies/tool_choice.h"
#include "worker/server/wire/conversation.h"
#include "worker/server/wire/input_items.h"
#include "worker/server/wire/listed_items.h"
#include "worker/server/wire/request_value.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Reads a request and builds the chat completion that answers it.
class ResponsesReader {
 public:
  ResponsesReader(const json& body, const ordered_json& ordered, UnknownFields& unknown)
      : body_{body, ordered, ""}, fields_(body), unknown_(unknown) {}

  ResponsesRequest read(const FindEarlierTurns& find_earlier) {
    ResponsesRequest request;
    read_messages(find_earlier, request);
    request.store = fields_.boolean("store").value_or(true);
    settings_["store"] = request.store;
    read_tools();
    read_tool_choice();
    if (const auto most = fields_.integer("max_output_tokens", 1, INT64_MAX)) {
      chat_["max_completion_tokens"] = *most;
      settings_["max_output_tokens"] = *most;
    }
    read_text_config();
    read_reasoning();
    read_logprobs();
    read_stream();
    copy_sampling(fields_, chat_);
    for (const char* name : {"temperature", "top_p"})
      if (const json* value = fields_.find(name)) settings_[name] = *value;
    read_other_fields();
    unknown_.take(fields_);
    request.model = requested_model(chat_);
    request.chat = chat_.dump();
    request.settings = std::move(settings_);
    return request;
  }

 private:
  void read_messages(const FindEarlierTurns& find_earlier, ResponsesRequest& request) {
    const auto earlier = fields_.text("previous_response_id");
    EarlierTurns turns;
    if (earlier) turns = find_earlier(*earlier);
    if (earlier) settings_["previous_response_id"] = *earlier;
    Conversation conversation(std::move(turns.messages));
    const json* input = fields_.find("input");
    if (!input)
      throw ApiError(400, "missing_field", "input is missing; allowed: a text, or an array of items", "input");
    read_input_items(body_.at("input"), conversation, unknown_);
    request.items = std::move(turns.items);
    append_listed_items(request.items, body_.at("input").ordered);
    request.conversation = conversation.messages();
    chat_["messages"] = ordered_json::array();
    if (const auto instructions = fields_.text("instructions")) {
      settings_["instructions"] = *instructions;
      chat_["messages"].push_back({{"role", "system"}, {"content", *instructions}});
    }
    for (const ordered_json& message : request.conversation) chat_["messages"].push_back(message);
  }

  ordered_json read_tool(const RequestValue& tool) {
    if (!tool.value.is_object()) throw bad_field(tool.field, json_excerpt(tool.value), "an object with type");
    Fields fields(tool.value, tool.field);
    const auto type = fields.text("type");
    if (type == "custom") return read_custom_tool(tool, fields);
    if (type != "function")
      throw bad_field(tool.field + ".type", type ? json_excerpt(*type) : "missing",
                      R"("function" or "custom", tools that the client runs; this server has no tools of its own)");
    ordered_json function = {{"name", required_text(fields, "name")}};
    if (const auto description = fields.text("description")) function["description"] = *description;
    if (const json* parameters = fields.find("parameters")) {
      if (!parameters->is_object())
        throw bad_field(tool.field + ".parameters", json_excerpt(*parameters), "a JSON Schema: an object");
      function["parameters"] = tool.ordered.at("parameters");
    }
    if (const auto strict = fields.boolean("strict")) function["strict"] = *strict;
    for (const char* other : {"allowed_callers", "defer_loading", "output_schema"}) fields.find(other);
    unknown_.take(fields);
    return {{"type", "function"}, {"function", std::move(function)}};
  }

  /// Chat completions check what it says; their grammar is an object of its own.
  ordered_json read_custom_tool(const RequestValue& tool, Fields& fields) {
    ordered_json custom = {{"name", required_text(fields, "name")}};
    if (const auto description = fields.text("description")) custom["description"] = *description;
    if (const json* format = fields.find("format")) {
      const RequestValue given = tool.at("format");
      if (!format->is_object()) throw bad_field(given.field, json_excerpt(*format), "an object with type");
      Fields inner(*format, given.field);
      const auto type = inner.text("type");
      if (type != "text" && type != "grammar")
        throw bad_field(given.field + ".type", type ? json_excerpt(*type) : "missing", R"("text" or "grammar")");
      custom["format"] = {{"type", *type}};
      if (type == "grammar")
        custom["format"]["grammar"] = {{"syntax", required_text(inner, "syntax")},
                                       {"definition", required_text(inner, "definition")}};
      inner.refuse_others();
    }
    for (const char* other : {"allowed_callers", "async", "defer_loading"}) fields.find(other);
    unknown_.take(fields);
    return {{"type", "custom"}, {"custom", std::move(custom)}};
  }

  void read_tools() {
    if (!fields_.find("tools")) return;
    const RequestValue tools = body_.at("tools");
    check_array(tools.value, "tools", 0, max_tools, "tools");
    chat_["tools"] = ordered_json::array();
    for (size_t i = 0; i < tools.value.size(); ++i) chat_["tools"].push_back(read_tool(tools.at(i)));
    settings_["tools"] = tools.ordered;
  }

  /// Chat completions check the words.
  void read_tool_choice() {
    if (const auto parallel = fields_.boolean("parallel_tool_calls")) {
      chat_["parallel_tool_calls"] = *parallel;
      settings_["parallel_tool_calls"] = *parallel;
    }
    const json* choice = fields_.find("tool_choice");
    if (!choice) return;
    settings_["tool_choice"] = body_.at("tool_choice").ordered;
    chat_["tool_choice"] = body_.at("tool_choice").ordered;
    if (!choice->is_object()) return;
    Fields fields(*choice, "tool_choice");
    const auto type = fields.text("type");
    if (type == "allowed_tools") return read_allowed_tools(fields);
    if (type != "function" && type != "custom")
      throw bad_field("tool_choice.type", type ? json_excerpt(*type) : "missing",
                      R"("function", "custom" or "allowed_tools"; or tool_choice "auto", "none" or "required")");
    chat_["tool_choice"] = {{"type", *type}, {*type, {{"name", required_text(fields, "name")}}}};
    unknown_.take(fields);
  }

  void read_allowed_tools(Fields& fields) {
    const std::string mode = required_text(fields, "mode");
    const json* tools = fields.find("tools");
    check_array(tools ? *tools : json(), "tool_choice.tools", 1, max_tools, "tools");
    ordered_json named = ordered_json::array();
    for (size_t i = 0; i < tools->size(); ++i) {
      const std::string field = "tool_choice.tools[" + std::to_string(i) + "]";
      if (!(*tools)[i].is_object()) throw bad_field(field, json_excerpt((*tools)[i]), "an object with type and name");
      Fields tool((*tools)[i], field);
      const auto type = tool.text("type");
      if (type != "function" && type != "custom")
        throw bad_field(field + ".type", type ? json_excerpt(*type) : "missing", R"("function" or "custom")");
      named.push_back({{"type", *type}, {*type, {{"name", required_text(tool, "name")}}}});
      unknown_.take(tool);
    }
    chat_["tool_choice"] = {{"type", "allowed_tools"},
                            {"allowed_tools", {{"mode", mode}, {"tools", std::move(named)}}}};
    unknown_.take(fields);
  }

  void read_format(const RequestValue& format) {
    if (!format.value.is_object()) throw bad_field(format.field, json_excerpt(format.value), "an object with type");
    Fields fields(format.value, format.field);
    const auto type = fields.text("type");
    if (type != "text" && type != "json_object" && type != "json_schema")
      throw bad_field(format.field + ".type", type ? json_excerpt(*type) : "missing",
                      "\"text\", \"json_object\" or \"json_schema\"");
    ordered_json named = ordered_json::object();
    if (type == "json_schema") {
      named["name"] = required_text(fields, "name");
      if (const auto description = fields.text("description")) named["description"] = *description;
      if (const auto strict = fields.boolean("strict")) named["strict"] = *strict;
      if (!fields.find("schema"))
        throw ApiError(400, "missing_field", format.field + ".schema is missing", format.field + ".schema");
      named["schema"] = format.ordered.at("schema");
    }
    fields.refuse_others();  // an answer never goes on without what else would constrain it
    chat_["response_format"] = {{"type", *type}};
    if (!named.empty()) chat_["response_format"]["json_schema"] = std::move(named);
  }

  void read_text_config() {
    settings_["text"] = {{"format", {{"type", "text"}}}};
    const json* text = fields_.find("text");
    if (!text) return;
    if (!text->is_object()) throw bad_field("text", json_excerpt(*text), "an object with format");
    Fields fields(*text, "text");
    if (fields.find("format")) {
      read_format(body_.at("text").at("format"));
      settings_["text"]["format"] = body_.at("text").at("format").ordered;
    }
    if (const auto verbosity = fields.text("verbosity")) {
      chat_["chat_template_kwargs"]["verbosity"] = *verbosity;
      settings_["text"]["verbosity"] = *verbosity;
    }
    unknown_.take(fields);
  }

  void read_reasoning() {
    settings_["reasoning"] = {{"effort", nullptr}, {"summary", nullptr}};
    const json* reasoning = fields_.find("reasoning");
    if (!reasoning) return;
    if (!reasoning->is_object()) throw bad_field("reasoning", json_excerpt(*reasoning), "an object with effort");
    Fields fields(*reasoning, "reasoning");
    if (const auto effort = fields.text("effort")) {
      chat_["reasoning_effort"] = *effort;
      if (*effort == "none")  // the names of the variable in the templates of Qwen3 and of DeepSeek and Granite
        for (const char* name : {"enable_thinking", "thinking"}) chat_["chat_template_kwargs"][name] = false;
      settings_["reasoning"]["effort"] = *effort;
    }
    for (const char* name : {"summary", "generate_summary", "context", "mode"}) fields.text(name);
    unknown_.take(fields);
  }

  void read_logprobs() {
    bool wanted = false;
    if (const json* include = fields_.find("include")) {
      check_array(*include, "include", 0, 64, "strings");
      for (const json& one : *include) {
        if (!one.is_string()) throw bad_field("include", json_excerpt(one), "strings");
        wanted = wanted || one == "message.output_text.logprobs";
      }
    }
    const auto top = fields_.integer("top_logprobs", 0, 20);
    if (wanted) chat_["logprobs"] = true;
    if (wanted && top) chat_["top_logprobs"] = *top;
    settings_["top_logprobs"] = top.value_or(0);
  }

  void read_stream() {
    const bool stream = fields_.boolean("stream").value_or(false);
    if (const json* options = fields_.find("stream_options")) {
      if (!options->is_object()) throw bad_field("stream_options", json_excerpt(*options), "an object");
      Fields fields(*options, "stream_options");
      fields.boolean("include_obfuscation");  // OpenAI pads events against traffic analysis; not done here
      unknown_.take(fields);
    }
    if (!stream) return;
    chat_["stream"] = true;
    chat_["stream_options"] = {{"include_usage", true}};
  }

  /// Reads what has no effect or one supported value.
  void read_other_fields() {
    settings_["metadata"] = ordered_json::object();
    if (const json* metadata = fields_.find("metadata")) {
      if (!metadata->is_object() || metadata->size() > max_metadata)
        throw bad_field("metadata", json_excerpt(*metadata),
                        "an object of at most " + std::to_string(max_metadata) + " fields");
      settings_["metadata"] = body_.at("metadata").ordered;
    }
    const auto truncation = fields_.text("truncation");
    if (truncation && *truncation != "disabled" && *truncation != "auto")
      throw bad_field("truncation", json_excerpt(*truncation), "\"disabled\" or \"auto\"");
    settings_["truncation"] = "disabled";  // an input that is too long is refused
    for (const char* name : {"user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "service_tier"})
      if (const auto text = fields_.text(name)) settings_[name] = *text;
    fields_.integer("max_tool_calls", 0, INT64_MAX);  // of tools that the server runs
    fields_.only("background", false);
    for (const char* name : {"conversation", "prompt", "moderation"}) fields_.only(name, nullptr);
  }

  const RequestValue body_;
  Fields fields_;
  UnknownFields& unknown_;
  ordered_json chat_ = ordered_json::object(), settings_ = ordered_json::object();
};

}  // namespace

ResponsesRequest parse_responses(std::string_view body, const FindEarlierTurns& find_earlier, UnknownFields& unknown) {
  const json object = parse_object(body, max_generation_depth);
  const ordered_json ordered = ordered_json::parse(body);
  return ResponsesReader(object, ordered, unknown).read(find_earlier);
}

std::span<const FieldName> responses_field_names() {
  static constexpr FieldName names[] = {{"max_completion_tokens", "max_output_tokens"},
                                        {"messages", "input"},
                                        {"image_url.url", "image_url"},
                                        {"response_format.json_schema", "text.format"},
                                        {"response_format", "text.format"},
                                        {"reasoning_effort", "reasoning.effort"},
                                        {"custom.format.grammar", "format"},
                                        {"custom.name", "name"}};
  return names;
}

}  // namespace pm::server
