// SPDX-License-Identifier: Apache-2.0
#include "worker/server/generation/chat_request.h"

#include <algorithm>
#include <array>

#include "worker/server/generation/completion_request.h"
#include "worker/server/http/api_error.h"
#include "worker/server/tasks/task_request.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;  // a template sees keys in the order of the request

constexpr size_t max_messages = 2048;
constexpr std::array chat_roles{"system", "developer", "user", "assistant", "tool"};

/// Reads the content of messages into the form that the template takes.
class ContentReader {
 public:
  ContentReader(const ContentForm& form, std::vector<ImageReference>& images, UnknownFields& unknown)
      : form_(form), images_(images), unknown_(unknown) {}

  ordered_json read(const json& content, const std::string& field, bool may_have_images) {
    if (content.is_string()) return form_.texts ? ordered_json(content) : ordered_json::array({text_part(content)});
    if (!content.is_array())
      throw bad_field(field, json_excerpt(content), "a text, or an array of parts {\"type\": \"text\", \"text\": ...}");
    ordered_json parts = ordered_json::array();
    bool has_images = false;
    for (size_t i = 0; i < content.size(); ++i) {
      parts.push_back(read_part(content[i], field + "[" + std::to_string(i) + "]", may_have_images));
      has_images = has_images || parts.back()["type"] == "image";
    }
    if (form_.parts && (has_images || !form_.texts)) return parts;
    std::string text;
    for (const ordered_json& part : parts)
      text += (&part == &parts.front() ? "" : "\n") +
              (part["type"] == "image" ? form_.image : part["text"].get<std::string>());
    return text;
  }

 private:
  static ordered_json text_part(const std::string& text) { return {{"type", "text"}, {"text", text}}; }

  ordered_json read_part(const json& part, const std::string& field, bool may_have_images) {
    const bool images = form_.images && may_have_images;
    if (!part.is_object())
      throw bad_field(field, json_excerpt(part),
                      images ? "an object of type \"text\" or \"image_url\"" : "an object of type \"text\"");
    Fields fields(part, field);
    const auto type = fields.text("type");
    if (type == "image_url" && images) return read_image(fields, field);
    if (type != "text")
      throw bad_field(field + ".type", type ? json_excerpt(*type) : "missing",
                      images ? "\"text\" or \"image_url\"; this route takes no sounds or files"
                      : form_.images && type == "image_url" ? "\"text\"; messages of the user may have images"
                                                            : "\"text\"; " + form_.refusal);
    const auto text = fields.text("text");
    if (!text) throw ApiError(400, "missing_field", field + ".text is missing", field + ".text");
    unknown_.take(fields);
    return text_part(*text);
  }

  /// OpenAI has an object with the URL; others send the URL itself.
  ordered_json read_image(Fields& fields, const std::string& field) {
    const json* image = fields.find("image_url");
    if (!image) throw ApiError(400, "missing_field", field + ".image_url is missing", field + ".image_url");
    if (images_.size() == max_images)
      throw ApiError(413, "too_many_inputs",
                     "messages have more than " + std::to_string(max_images) + " images, the most of one request",
                     field);
    if (image->is_string()) {
      images_.push_back({*image, field + ".image_url"});
    } else {
      if (!image->is_object())
        throw bad_field(field + ".image_url", json_excerpt(*image),
                        "an object {\"url\": \"data:image/png;base64,...\"}");
      Fields inner(*image, field + ".image_url");
      const auto url = inner.text("url");
      if (!url) throw ApiError(400, "missing_field", field + ".image_url.url is missing", field + ".image_url.url");
      inner.text("detail");  // the checkpoint's preprocessing decides the size
      unknown_.take(inner);
      images_.push_back({*url, field + ".image_url.url"});
    }
    unknown_.take(fields);
    return {{"type", "image"}};
  }

  const ContentForm& form_;
  std::vector<ImageReference>& images_;
  UnknownFields& unknown_;
};

/// Turns {"type": "custom", "custom": {"name", "input"}} into the call of the function that templates have been shown.
void read_custom_call(ordered_json& call, const std::string& field) {
  const json custom = call.value("custom", ordered_json());
  if (!custom.is_object()) throw bad_field(field, json_excerpt(json(call)), "objects with a function, or with custom");
  Fields fields(custom, field + ".custom");
  const auto name = fields.text("name"), input = fields.text("input");
  if (!name || !input) throw bad_field(field + ".custom", json_excerpt(custom), "an object with name and input, texts");
  call["type"] = "function";
  call["function"] = {{"name", *name}, {"arguments", custom_arguments(*input)}};
  call.erase("custom");
}

/// Replaces the arguments of tool calls, strings of JSON, by the objects that templates expect.
void parse_arguments(ordered_json& calls, const std::string& field) {
  if (!calls.is_array()) throw bad_field(field, json_excerpt(json(calls)), "an array of tool calls");
  for (auto& call : calls) {
    if (call.is_object() && call.value("type", ordered_json()) == "custom") read_custom_call(call, field);
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object())
      throw bad_field(field, json_excerpt(json(call)), "objects with a function, or with custom");
    auto& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    auto arguments = ordered_json::parse(function["arguments"].get_ref<const std::string&>(), nullptr, false);
    if (arguments.is_object()) function["arguments"] = std::move(arguments);
  }
}

/// Validates `message` and turns `ordered`, the same message with its keys in order, into what the template reads.
void read_message(const json& message, ordered_json& ordered, const std::string& field, ContentReader& contents,
                  UnknownFields& unknown) {
  if (!message.is_object()) throw bad_field(field, json_excerpt(message), "an object with role and content");
  Fields fields(message, field);
  const auto role = fields.text("role");
  if (!role)
    throw ApiError(400, "missing_field", field + ".role is missing; allowed: system, developer, user, assistant, tool",
                   field + ".role");
  if (std::find(chat_roles.begin(), chat_roles.end(), *role) == chat_roles.end())
    throw bad_field(field + ".role", json_excerpt(*role), "system, developer, user, assistant, tool");
  const auto* content = fields.find("content");
  const auto* calls = fields.find("tool_calls");
  if (content)
    ordered["content"] = contents.read(*content, field + ".content", *role == "user");
  else if (*role != "assistant" || !calls)
    throw ApiError(400, "missing_field",
                   field + ".content is missing; only an assistant message with tool_calls may omit it",
                   field + ".content");
  if (calls) parse_arguments(ordered["tool_calls"], field + ".tool_calls");
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) fields.text(name);
  for (const char* name : {"refusal", "annotations", "audio",
                           "function_call"}) {  // OpenAI's client sends these back with an earlier answer
    const auto* value = fields.find(name);
    if (value && !value->empty()) throw bad_field(field + "." + name, json_excerpt(*value), "null");
    ordered.erase(name);
  }
  unknown.take(fields);
  for (const std::string& name : fields.unread()) ordered.erase(name);
}

void read_messages(Fields& fields, ordered_json& ordered, ContentReader& contents, UnknownFields& unknown) {
  const auto* messages = fields.find("messages");
  if (!messages)
    throw ApiError(400, "missing_field", "messages is missing; allowed: an array of {\"role\", \"content\"}",
                   "messages");
  if (!messages->is_array() || messages->empty() || messages->size() > max_messages)
    throw bad_field("messages", json_excerpt(*messages),
                    "an array of 1 to " + std::to_string(max_messages) + " messages");
  for (size_t i = 0; i < messages->size(); ++i)
    read_message((*messages)[i], ordered["messages"][i], "messages[" + std::to_string(i) + "]", contents, unknown);
}

/// Reads the fields that the template gets beside messages.
void read_template_fields(Fields& fields, const ordered_json& ordered, ordered_json& conversation) {
  const bool continues = fields.boolean("continue_final_message").value_or(false);
  const bool prompts = fields.boolean("add_generation_prompt").value_or(!continues);
  if (continues && prompts)
    throw ApiError(400, "invalid_value",
                   "continue_final_message and add_generation_prompt exclude each other; send one of them",
                   "continue_final_message");
  conversation["add_generation_prompt"] = prompts;
  conversation["continue_final_message"] = continues;
  conversation["kwargs"] = ordered_json::object();
  if (const auto* more = fields.find("chat_template_kwargs")) {
    if (!more->is_object())
      throw bad_field("chat_template_kwargs", json_excerpt(*more), "an object of values for the chat template");
    conversation["kwargs"] = ordered["chat_template_kwargs"];
  }
  if (const auto effort = fields.text("reasoning_effort")) conversation["kwargs"].emplace("reasoning_effort", *effort);
  if (const auto* documents = fields.find("documents")) {
    if (!documents->is_array()) throw bad_field("documents", json_excerpt(*documents), "an array of objects");
    conversation["documents"] = ordered["documents"];
  }
  fields.only("chat_template", nullptr);  // templates from clients are not run
}

void read_logprobs(Fields& fields, ChatRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, max_logprobs);
  if (top && !wanted)
    throw ApiError(400, "invalid_value", "top_logprobs needs logprobs: true; send both or neither", "logprobs");
  if (wanted) request.logprobs = top.value_or(0);
}

/// Reads OpenAI's fields that have no effect here, and those that have one supported value.
void read_unused_fields(Fields& fields) {
  if (const auto* kinds = fields.find("modalities"))
    if (*kinds != json::array({"text"})) throw bad_field("modalities", json_excerpt(*kinds), "[\"text\"]");
  for (const char* name : {"safety_identifier", "prompt_cache_key", "service_tier"}) fields.text(name);
  const auto* metadata = fields.find("metadata");
  if (metadata && !metadata->is_object()) throw bad_field("metadata", json_excerpt(*metadata), "an object");
  fields.only("store", false);
  for (const char* name : {"audio", "prediction", "web_search_options", "verbosity"}) fields.only(name, nullptr);
}

}  // namespace

ChatRequest parse_chat(std::string_view body, const ServedNames& names, const ContentForm& form,
                       UnknownFields& unknown) {
  const json object = parse_object(body, max_generation_depth);
  ordered_json ordered = ordered_json::parse(body), conversation = ordered_json::object();
  Fields fields(object);
  ChatRequest request;
  ContentReader contents(form, request.images, unknown);
  read_messages(fields, ordered, contents, unknown);
  conversation["messages"] = std::move(ordered["messages"]);
  request.tools = read_tool_choice(fields, ordered, unknown);
  if (!request.tools.tools.empty()) conversation["tools"] = request.tools.tools;
  read_template_fields(fields, ordered, conversation);
  read_max_tokens(fields, "max_tokens", request.params);
  read_max_tokens(fields, "max_completion_tokens", request.params);
  const OpenAiFields read = read_openai(fields, body, names, request.params, unknown);
  request.n = read.n;
  request.prompt_logprobs = read.prompt_logprobs;
  request.stream = read.stream;
  request.include_usage = read.include_usage;
  read_logprobs(fields, request);
  read_unused_fields(fields);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  unknown.take(fields);
  conversation["developer_is_system"] = true;
  request.conversation = conversation.dump();
  return request;
}

}  // namespace pm::server
