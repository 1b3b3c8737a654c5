// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/messages_request.h"

#include <algorithm>

#include "worker/server/http/api_error.h"
#include "worker/server/replies/tool_choice.h"
#include "worker/server/wire/conversation.h"
#include "worker/server/wire/request_value.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

/// Reads a request and builds the chat completion that answers it.
class MessagesReader {
 public:
  MessagesReader(const json& body, const ordered_json& ordered, UnknownFields& unknown)
      : body_{body, ordered, ""}, fields_(body), unknown_(unknown) {}

  MessagesRequest read(bool counts_tokens) {
    MessagesRequest request;
    refuse_thread();
    read_system();
    read_turns();
    if (fields_.find("tools")) read_tools();
    if (fields_.find("tool_choice")) read_tool_choice();
    request.max_tokens = read_max_tokens(counts_tokens);
    read_stops();
    read_stream();
    if (fields_.find("thinking")) read_thinking();
    read_output();
    copy_sampling(fields_, chat_);
    read_fields_without_effect();
    unknown_.take(fields_);
    request.model = requested_model(chat_);
    request.chat = chat_.dump();
    return request;
  }

 private:
  /// Reads {"type": "text", "text"}, or what else has the field "text".
  std::string read_text(Fields& block) {
    block.find("cache_control");
    block.find("citations");
    return required_text(block, "text");
  }

  /// Reads a text, or blocks of type text, and hands on each text.
  template <class Take>
  void read_texts(const RequestValue& content, const Take& take) {
    if (content.value.is_string()) return take(content.value.get<std::string>());
    if (!content.value.is_array())
      throw bad_field(content.field, json_excerpt(content.value),
                      "a text, or an array of blocks {\"type\": \"text\", \"text\": ...}");
    for (size_t i = 0; i < content.value.size(); ++i) {
      const RequestValue block = content.at(i);
      Fields fields(block.value, block.field);
      const auto type = fields.text("type");
      if (type != "text") refuse_block(block, type, "\"text\"");
      take(read_text(fields));
      unknown_.take(fields);
    }
  }

  [[noreturn]] static void refuse_block(const RequestValue& block, const std::optional<std::string>& type,
                                        const std::string& allowed) {
    throw bad_field(block.field + ".type", type ? json_excerpt(*type) : "missing",
                    allowed +
                        "; images stand in messages of the user, and this route takes no documents or results of "
                        "Anthropic's own tools");
  }

  /// This server keeps no threads. Without the refusal a continued one would be answered from its last turn alone;
  /// after it Anthropic's clients send the whole conversation.
  void refuse_thread() {
    if (fields_.find("thread"))
      throw ApiError(400, "thread_unsupported_request",
                     "thread is not supported: this server keeps no messages; send all of them without thread",
                     "thread");
  }

  void read_system() {
    if (fields_.find("system"))
      read_texts(body_.at("system"), [&](const std::string& text) { conversation_.add_text("system", text); });
  }

  void read_tool_use(Fields& fields, const RequestValue& block) {
    const std::string id = required_text(fields, "id"), name = required_text(fields, "name");
    for (const char* other : {"cache_control", "caller", "toolset_name"}) fields.find(other);
    const json* input = fields.find("input");
    if (!input || !input->is_object())
      throw bad_field(block.field + ".input", input ? json_excerpt(*input) : "missing", "an object");
    conversation_.add_call(id, name, block.ordered.at("input"));
  }

  void read_tool_result(Fields& fields, const RequestValue& block) {
    const std::string id = required_text(fields, "tool_use_id");
    for (const char* other : {"cache_control", "toolset_name"}) fields.find(other);
    fields.boolean("is_error");  // templates have no place for it: the text says what failed
    std::string text;
    bool first = true;
    if (fields.find("content"))
      read_texts(block.at("content"), [&](const std::string& one) {
        text += (first ? "" : "\n") + one;
        first = false;
      });
    conversation_.add_result(id, text);
  }

  /// Reads {"type": "image", "source": {"type": "base64", "media_type", "data"} or {"type": "url", "url"}}.
  void read_image(Fields& fields, const RequestValue& block) {
    fields.find("cache_control");
    const json* source = fields.find("source");
    if (!source || !source->is_object())
      throw bad_field(block.field + ".source", source ? json_excerpt(*source) : "missing",
                      R"(an object of type "base64" or "url")");
    Fields inner(*source, block.field + ".source");
    const auto type = inner.text("type");
    if (type == "base64") {
      const std::string media = required_text(inner, "media_type");
      conversation_.add_image("user", "data:" + media + ";base64," + required_text(inner, "data"));
    } else if (type == "url") {
      conversation_.add_image("user", required_text(inner, "url"));
    } else {
      throw bad_field(block.field + ".source.type", type ? json_excerpt(*type) : "missing", R"("base64" or "url")");
    }
    unknown_.take(inner);
  }

  void read_block(const RequestValue& block, const std::string& role) {
    if (!block.value.is_object()) throw bad_field(block.field, json_excerpt(block.value), "an object with type");
    Fields fields(block.value, block.field);
    const auto type = fields.text("type");
    const bool assistant = role == "assistant";
    if (type == "text") {
      conversation_.add_text(role, read_text(fields));
    } else if (assistant && type == "thinking") {
      fields.text("signature");
      conversation_.add_reasoning(required_text(fields, "thinking"));
    } else if (assistant && type == "redacted_thinking") {
      fields.text("data");  // nobody but its author can read it
    } else if (assistant && type == "tool_use") {
      read_tool_use(fields, block);
    } else if (role == "user" && type == "image") {
      read_image(fields, block);
    } else if (role == "user" && type == "tool_result") {
      read_tool_result(fields, block);
    } else {
      refuse_block(block, type,
                   assistant        ? "\"text\", \"thinking\", \"redacted_thinking\" or \"tool_use\""
                   : role == "user" ? "\"text\", \"image\" or \"tool_result\""
                                    : "\"text\"");
    }
    unknown_.take(fields);
  }

  void read_turn(const RequestValue& turn) {
    if (!turn.value.is_object())
      throw bad_field(turn.field, json_excerpt(turn.value), "an object with role and content");
    Fields fields(turn.value, turn.field);
    const std::string role = required_text(fields, "role");
    if (role != "user" && role != "assistant" && role != "system")
      throw bad_field(turn.field + ".role", json_excerpt(role), "user, assistant, system");
    const json* content = fields.find("content");
    if (!content) throw ApiError(400, "missing_field", turn.field + ".content is missing", turn.field + ".content");
    if (content->is_string()) {
      conversation_.add_text(role, *content);
    } else {
      check_array(*content, turn.field + ".content", 0, max_turns, "blocks; or a text");
      for (size_t i = 0; i < content->size(); ++i) read_block(turn.at("content").at(i), role);
    }
    unknown_.take(fields);
  }

  void read_turns() {
    const json* turns = fields_.find("messages");
    if (!turns)
      throw ApiError(400, "missing_field", "messages is missing; allowed: an array of {\"role\", \"content\"}",
                     "messages");
    check_array(*turns, "messages", 1, max_turns, "messages");
    for (size_t i = 0; i < turns->size(); ++i) read_turn(body_.at("messages").at(i));
    chat_["messages"] = conversation_.messages();
    if (!conversation_.ends_with_answer()) return;
    chat_["continue_final_message"] = true;
    chat_["add_generation_prompt"] = false;
  }

  ordered_json read_tool(const RequestValue& tool) {
    Fields fields(tool.value, tool.field);
    const auto type = fields.text("type");
    if (type && *type != "custom")
      throw bad_field(tool.field + ".type", json_excerpt(*type),
                      "\"custom\", a tool that the client runs; this server has no tools of its own");
    ordered_json function = {{"name", required_text(fields, "name")}};
    if (const auto description = fields.text("description")) function["description"] = *description;
    const json* input_schema = fields.find("input_schema");
    if (!input_schema || !input_schema->is_object())
      throw bad_field(tool.field + ".input_schema", input_schema ? json_excerpt(*input_schema) : "missing",
                      "a JSON Schema: an object");
    function["parameters"] = tool.ordered.at("input_schema");
    if (const auto strict = fields.boolean("strict")) function["strict"] = *strict;
    for (const char* other :
         {"cache_control", "allowed_callers", "defer_loading", "eager_input_streaming", "input_examples"})
      fields.find(other);
    unknown_.take(fields);
    return {{"type", "function"}, {"function", std::move(function)}};
  }

  void read_tools() {
    const RequestValue tools = body_.at("tools");
    check_array(tools.value, "tools", 0, max_tools, "tools");
    chat_["tools"] = ordered_json::array();
    for (size_t i = 0; i < tools.value.size(); ++i) chat_["tools"].push_back(read_tool(tools.at(i)));
  }

  void read_tool_choice() {
    const RequestValue choice = body_.at("tool_choice");
    if (!choice.value.is_object()) throw bad_field("tool_choice", json_excerpt(choice.value), "an object with type");
    Fields fields(choice.value, "tool_choice");
    const auto type = fields.text("type");
    if (type == "auto" || type == "none")
      chat_["tool_choice"] = *type;
    else if (type == "any")
      chat_["tool_choice"] = "required";
    else if (type == "tool")
      chat_["tool_choice"] = {{"type", "function"}, {"function", {{"name", required_text(fields, "name")}}}};
    else
      throw bad_field("tool_choice.type", type ? json_excerpt(*type) : "missing",
                      "\"auto\", \"any\", \"tool\" or \"none\"");
    if (const auto single = fields.boolean("disable_parallel_tool_use")) chat_["parallel_tool_calls"] = !*single;
    unknown_.take(fields);
  }

  int64_t read_max_tokens(bool counts_tokens) {
    const auto most = fields_.integer("max_tokens", 1, INT64_MAX);
    if (most) chat_["max_completion_tokens"] = *most;
    if (!most && !counts_tokens)
      throw ApiError(400, "missing_field", "max_tokens is missing; allowed: an integer from 1 up", "max_tokens");
    return most.value_or(0);
  }

  void read_stops() {
    const json* stops = fields_.find("stop_sequences");
    if (!stops) return;
    check_array(*stops, "stop_sequences", 0, max_stop_sequences, "strings");
    for (const json& stop : *stops)
      if (!stop.is_string() || stop.get_ref<const std::string&>().empty())
        throw bad_field("stop_sequences", json_excerpt(stop), "strings, none of them empty");
    if (!stops->empty()) chat_["stop"] = *stops;
  }

  void read_stream() {
    if (!fields_.boolean("stream").value_or(false)) return;
    chat_["stream"] = true;
    chat_["stream_options"] = {{"include_usage", true}};
  }

  /// The two names are those of the variable in the templates of Qwen3 and of DeepSeek and Granite.
  void read_thinking() {
    const RequestValue thinking = body_.at("thinking");
    if (!thinking.value.is_object()) throw bad_field("thinking", json_excerpt(thinking.value), "an object with type");
    Fields fields(thinking.value, "thinking");
    const auto type = fields.text("type");
    const bool disabled = type == "disabled";
    if (!disabled && type != "enabled" && type != "adaptive" && type != "between_tools")
      throw bad_field("thinking.type", type ? json_excerpt(*type) : "missing",
                      "\"enabled\", \"adaptive\", \"between_tools\" or \"disabled\"");
    fields.integer("budget_tokens", 0, INT64_MAX);  // thinking is bounded by max_tokens alone
    fields.text("display");
    unknown_.take(fields);
    for (const char* name : {"enable_thinking", "thinking"}) chat_["chat_template_kwargs"][name] = !disabled;
  }

  void read_format(const RequestValue& format) {
    if (!format.value.is_object()) throw bad_field(format.field, json_excerpt(format.value), "an object with type");
    Fields fields(format.value, format.field);
    const auto type = fields.text("type");
    if (type != "json_schema")
      throw bad_field(format.field + ".type", type ? json_excerpt(*type) : "missing", "\"json_schema\"");
    if (!fields.find("schema"))
      throw ApiError(400, "missing_field", format.field + ".schema is missing", format.field + ".schema");
    fields.refuse_others();  // an answer never goes on without what else would constrain it
    chat_["response_format"] = {
        {"type", "json_schema"},
        {"json_schema", {{"name", "output"}, {"schema", format.ordered.at("schema")}, {"strict", true}}}};
  }

  /// output_format is the name that output_config.format had before.
  void read_output() {
    const bool older = fields_.find("output_format") != nullptr;
    if (older) read_format(body_.at("output_format"));
    if (const json* config = fields_.find("output_config")) {
      if (!config->is_object()) throw bad_field("output_config", json_excerpt(*config), "an object");
      Fields fields(*config, "output_config");
      if (const auto effort = fields.text("effort")) chat_["reasoning_effort"] = *effort;
      if (const json* format = fields.find("format")) {
        if (older) throw bad_field("output_config.format", json_excerpt(*format), "null beside output_format");
        read_format(body_.at("output_config").at("format"));
      }
      unknown_.take(fields);
    }
  }

  void read_fields_without_effect() {
    const json* metadata = fields_.find("metadata");
    if (metadata && !metadata->is_object()) throw bad_field("metadata", json_excerpt(*metadata), "an object");
    for (const char* name : {"service_tier", "inference_geo", "speed", "user_profile_id", "workspace_id"})
      fields_.text(name);
    for (const char* name : {"cache_control", "diagnostics"}) fields_.find(name);
    fields_.only("container", nullptr);
    fields_.only("mcp_servers", json::array());
  }

  const RequestValue body_;
  Fields fields_;
  UnknownFields& unknown_;
  Conversation conversation_;
  ordered_json chat_ = ordered_json::object();
};

}  // namespace

MessagesRequest parse_messages(std::string_view body, bool counts_tokens, UnknownFields& unknown) {
  const json object = parse_object(body, max_generation_depth);
  const ordered_json ordered = ordered_json::parse(body);
  return MessagesReader(object, ordered, unknown).read(counts_tokens);
}

std::span<const FieldName> messages_field_names() {
  static constexpr FieldName names[] = {{"max_completion_tokens", "max_tokens"},
                                        {"image_url.url", "source"},
                                        {"response_format.json_schema.schema", "output_config.format.schema"},
                                        {"response_format", "output_config.format"},
                                        {"reasoning_effort", "output_config.effort"}};
  return names;
}

}  // namespace pm::server
