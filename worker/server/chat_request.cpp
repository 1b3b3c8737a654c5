// See chat_request.h.
#include "worker/server/chat_request.h"

#include <algorithm>
#include <array>

#include "worker/server/api_error.h"
#include "worker/server/completion_request.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;   // a template sees keys in the order in which they were given

constexpr size_t kMessages = 2048, kTools = 512;
constexpr std::array kRoles{"system", "developer", "user", "assistant", "tool"};

std::string part_of(const json& part, const std::string& field) {
  if (!part.is_object()) throw bad_field(field, shown(part), "an object of type \"text\"");
  Fields fields(part, field + ".");
  const auto type = fields.text("type");
  if (type != "text") throw bad_field(field + ".type", type ? shown(*type) : "missing", "\"text\"; this route takes no images, sounds or files");
  const auto text = fields.text("text");
  if (!text) throw ApiError(400, "missing_field", field + ".text is missing", field + ".text");
  fields.refuse_others();
  return *text;
}

std::string content_of(const json& content, const std::string& field) {
  if (content.is_string()) return content;
  if (!content.is_array()) throw bad_field(field, shown(content), "a text, or an array of parts {\"type\": \"text\", \"text\": ...}");
  std::string text;
  for (size_t i = 0; i < content.size(); ++i) text += (i == 0 ? "" : "\n") + part_of(content[i], field + "[" + std::to_string(i) + "]");
  return text;
}

/// Calls as templates expect them: arguments are an object.
void open_arguments(ordered_json& calls, const std::string& field) {
  if (!calls.is_array()) throw bad_field(field, shown(json(calls)), "an array of tool calls");
  for (auto& call : calls) {
    if (!call.is_object() || !call.contains("function") || !call["function"].is_object()) throw bad_field(field, shown(json(call)), "objects with a function");
    auto& function = call["function"];
    if (!function.contains("arguments") || !function["arguments"].is_string()) continue;
    auto arguments = ordered_json::parse(function["arguments"].get_ref<const std::string&>(), nullptr, false);
    if (arguments.is_object()) function["arguments"] = std::move(arguments);
  }
}

/// Checks `message` and makes of `given`, the same with its keys in order, what the template sees.
void read_message(const json& message, ordered_json& given, const std::string& field) {
  if (!message.is_object()) throw bad_field(field, shown(message), "an object with role and content");
  Fields fields(message, field + ".");
  const auto role = fields.text("role");
  if (!role) throw ApiError(400, "missing_field", field + ".role is missing; allowed: system, developer, user, assistant, tool", field + ".role");
  if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) throw bad_field(field + ".role", shown(*role), "system, developer, user, assistant, tool");
  const auto* content = fields.find("content");
  const auto* calls = fields.find("tool_calls");
  if (content) given["content"] = content_of(*content, field + ".content");
  else if (*role != "assistant" || !calls) throw ApiError(400, "missing_field", field + ".content is missing; only an assistant's tool calls need none", field + ".content");
  if (calls) open_arguments(given["tool_calls"], field + ".tool_calls");
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "reasoning", "thinking"}) fields.text(name);
  for (const char* name : {"refusal", "annotations", "audio", "function_call"}) {   // what OpenAI's client sends back of an answer
    const auto* value = fields.find(name);
    if (value && !value->empty()) throw bad_field(field + "." + name, shown(*value), "null");
    given.erase(name);
  }
  fields.refuse_others();
}

void read_messages(Fields& fields, ordered_json& given) {
  const auto* messages = fields.find("messages");
  if (!messages) throw ApiError(400, "missing_field", "messages is missing; allowed: an array of {\"role\", \"content\"}", "messages");
  if (!messages->is_array() || messages->empty() || messages->size() > kMessages)
    throw bad_field("messages", shown(*messages), "an array of 1 to " + std::to_string(kMessages) + " messages");
  for (size_t i = 0; i < messages->size(); ++i) read_message((*messages)[i], given["messages"][i], "messages[" + std::to_string(i) + "]");
}

/// Tools are shown to the model; that it calls one cannot be demanded.
void read_tools(Fields& fields, const ordered_json& given, ordered_json& conversation) {
  if (const auto* tools = fields.find("tools")) {
    const bool objects = tools->is_array() && std::all_of(tools->begin(), tools->end(), [](const json& tool) { return tool.is_object(); });
    if (!objects || tools->size() > kTools) throw bad_field("tools", shown(*tools), "an array of at most " + std::to_string(kTools) + " objects");
    if (!tools->empty()) conversation["tools"] = given["tools"];
  }
  if (const auto* choice = fields.find("tool_choice")) {
    if (*choice != "auto" && *choice != "none") throw bad_field("tool_choice", shown(*choice), "\"auto\" or \"none\": a call cannot be demanded, and calls come back as text");
    if (*choice == "none") conversation.erase("tools");
  }
  fields.boolean("parallel_tool_calls");   // calls are not told apart, so there is nothing to allow
  for (const char* name : {"functions", "function_call"}) fields.only(name, nullptr);
}

/// What the template gets beside messages.
void read_template_fields(Fields& fields, const ordered_json& given, ordered_json& conversation) {
  const bool continues = fields.boolean("continue_final_message").value_or(false);
  const bool prompts = fields.boolean("add_generation_prompt").value_or(!continues);
  if (continues && prompts) throw ApiError(400, "invalid_value", "continue_final_message and add_generation_prompt exclude each other; send one of them", "continue_final_message");
  conversation["add_generation_prompt"] = prompts;
  conversation["continue_final_message"] = continues;
  conversation["kwargs"] = ordered_json::object();
  if (const auto* more = fields.find("chat_template_kwargs")) {
    if (!more->is_object()) throw bad_field("chat_template_kwargs", shown(*more), "an object of values for the chat template");
    conversation["kwargs"] = given["chat_template_kwargs"];
  }
  if (const auto effort = fields.text("reasoning_effort")) conversation["kwargs"].emplace("reasoning_effort", *effort);
  if (const auto* documents = fields.find("documents")) {
    if (!documents->is_array()) throw bad_field("documents", shown(*documents), "an array of objects");
    conversation["documents"] = given["documents"];
  }
  fields.only("chat_template", nullptr);   // code of the client's is not run
}

void read_logprobs(Fields& fields, ChatRequest& request) {
  const bool wanted = fields.boolean("logprobs").value_or(false);
  const auto top = fields.integer("top_logprobs", 0, kLogprobs);
  if (top && !wanted) throw ApiError(400, "invalid_value", "top_logprobs is given without logprobs: true", "logprobs");
  if (wanted) request.logprobs = top.value_or(0);
}

/// OpenAI's fields that change nothing here, or that are served at one value only.
void read_neutral(Fields& fields) {
  if (const auto* format = fields.find("response_format"))
    if (*format != json{{"type", "text"}}) throw bad_field("response_format", format->is_object() ? shown(format->value("type", json())) : shown(*format), "{\"type\": \"text\"}: answers are not held to a schema");
  if (const auto* kinds = fields.find("modalities"))
    if (*kinds != json::array({"text"})) throw bad_field("modalities", shown(*kinds), "[\"text\"]");
  for (const char* name : {"safety_identifier", "prompt_cache_key", "service_tier"}) fields.text(name);
  const auto* metadata = fields.find("metadata");
  if (metadata && !metadata->is_object()) throw bad_field("metadata", shown(*metadata), "an object");
  fields.only("store", false);
  for (const char* name : {"audio", "prediction", "web_search_options", "verbosity"}) fields.only(name, nullptr);
}

}  // namespace

ChatRequest parse_chat(std::string_view body, const std::string& model) {
  const json object = parse_object(body);
  ordered_json given = ordered_json::parse(body), conversation = ordered_json::object();
  Fields fields(object);
  ChatRequest request;
  read_messages(fields, given);
  conversation["messages"] = std::move(given["messages"]);
  read_tools(fields, given, conversation);
  read_template_fields(fields, given, conversation);
  request.asked.max_new_tokens = fields.integer("max_tokens", 1, INT64_MAX);
  if (const auto newer = fields.integer("max_completion_tokens", 1, INT64_MAX)) request.asked.max_new_tokens = newer;
  const OpenAiFields read = read_openai(fields, model, request.asked);
  request.n = read.n;
  request.stream = read.stream;
  request.include_usage = read.include_usage;
  read_logprobs(fields, request);
  read_neutral(fields);
  request.return_token_ids = fields.boolean("return_token_ids").value_or(false);
  fields.refuse_others();
  conversation["developer_is_system"] = true;
  request.conversation = conversation.dump();
  return request;
}

}  // namespace pm::server
