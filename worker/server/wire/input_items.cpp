// SPDX-License-Identifier: Apache-2.0
#include "worker/server/wire/input_items.h"

#include <algorithm>
#include <array>
#include <vector>

#include "worker/server/http/api_error.h"
#include "worker/server/wire/responses_request.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

class ItemReader {
 public:
  ItemReader(Conversation& conversation, UnknownFields& unknown) : conversation_(conversation), unknown_(unknown) {}

  void read(const RequestValue& item) {
    if (!item.value.is_object()) throw bad_field(item.field, json_excerpt(item.value), "an object with type");
    Fields fields(item.value, item.field);
    fields.text("id");
    fields.text("status");
    const std::string type = fields.text("type").value_or("message");
    if (type == "message")
      read_message(fields, item);
    else if (type == "function_call")
      read_call(fields);
    else if (type == "custom_tool_call")
      read_custom_call(fields);
    else if (type == "function_call_output" || type == "custom_tool_call_output")
      read_output(fields, item);
    else if (type == "reasoning")
      read_reasoning(fields, item);
    else
      throw bad_field(item.field + ".type", json_excerpt(type),
                      R"("message", "reasoning", "function_call", "function_call_output", "custom_tool_call" or )"
                      R"("custom_tool_call_output")");
    unknown_.take(fields);
  }

 private:
  /// Returns the text of a part {"type", "text"} with one of the types. A refusal is a text too.
  std::string text(const RequestValue& part, const std::vector<std::string>& types) {
    if (!part.value.is_object()) throw bad_field(part.field, json_excerpt(part.value), "an object with type");
    Fields fields(part.value, part.field);
    const auto type = fields.text("type");
    if (!type || std::find(types.begin(), types.end(), *type) == types.end()) {
      std::string allowed;
      for (const std::string& one : types) allowed += (allowed.empty() ? "\"" : ", \"") + one + "\"";
      throw bad_field(part.field + ".type", type ? json_excerpt(*type) : "missing",
                      allowed + "; images stand in messages of the user, and this route takes no sounds or files");
    }
    std::string found = required_text(fields, type == "refusal" ? "refusal" : "text");
    for (const char* other : {"annotations", "logprobs", "prompt_cache_breakpoint"}) fields.find(other);
    unknown_.take(fields);
    return found;
  }

  /// Returns the texts of an array of such parts.
  std::vector<std::string> texts(const RequestValue& parts, const std::vector<std::string>& types) {
    std::vector<std::string> all;
    check_array(parts.value, parts.field, 0, max_items, "parts");
    for (size_t i = 0; i < parts.value.size(); ++i) all.push_back(text(parts.at(i), types));
    return all;
  }

  void read_message(Fields& fields, const RequestValue& item) {
    static constexpr std::array roles{"user", "assistant", "system", "developer"};
    const std::string role = required_text(fields, "role");
    if (std::find(roles.begin(), roles.end(), role) == roles.end())
      throw bad_field(item.field + ".role", json_excerpt(role), "user, assistant, system, developer");
    fields.text("phase");
    const json* content = fields.find("content");
    if (!content) throw ApiError(400, "missing_field", item.field + ".content is missing", item.field + ".content");
    if (role != "assistant") conversation_.begin(role);
    if (content->is_string()) return conversation_.add_text(role, *content);
    if (role == "user") return read_user_parts(item.at("content"));
    for (const std::string& text :
         texts(item.at("content"), role == "assistant" ? std::vector<std::string>{"output_text", "refusal", "text"}
                                                       : std::vector<std::string>{"input_text", "text"}))
      conversation_.add_text(role, text);
  }

  /// Adds texts and images of the user. Chat completions refuse images where the model reads none.
  void read_user_parts(const RequestValue& parts) {
    check_array(parts.value, parts.field, 0, max_items, "parts");
    for (size_t i = 0; i < parts.value.size(); ++i) {
      const RequestValue part = parts.at(i);
      const auto type = part.value.is_object() ? part.value.find("type") : part.value.end();
      if (!part.value.is_object() || type == part.value.end() || *type != "input_image") {
        conversation_.add_text("user", text(part, {"input_text", "text"}));
        continue;
      }
      Fields fields(part.value, part.field);
      fields.text("type");
      fields.text("detail");  // the checkpoint's preprocessing decides the size
      if (fields.find("file_id"))
        throw bad_field(part.field + ".file_id", json_excerpt(part.value["file_id"]),
                        "no file_id, for this server keeps no files; send image_url");
      conversation_.add_image("user", required_text(fields, "image_url"));
      unknown_.take(fields);
    }
  }

  /// Templates expect an object; what is none stays a text.
  void read_call(Fields& fields) {
    const std::string id = required_text(fields, "call_id"), name = required_text(fields, "name"),
                      text = required_text(fields, "arguments");
    for (const char* other : {"async", "caller", "namespace"}) fields.find(other);
    conversation_.add_call(id, name, text);
  }

  void read_custom_call(Fields& fields) {
    const std::string id = required_text(fields, "call_id"), name = required_text(fields, "name"),
                      input = required_text(fields, "input");
    for (const char* other : {"async", "caller", "namespace"}) fields.find(other);
    conversation_.add_custom_call(id, name, input);
  }

  void read_output(Fields& fields, const RequestValue& item) {
    const std::string id = required_text(fields, "call_id");
    for (const char* other : {"caller", "name", "namespace"}) fields.find(other);
    const json* output = fields.find("output");
    if (!output) throw ApiError(400, "missing_field", item.field + ".output is missing", item.field + ".output");
    if (output->is_string()) return conversation_.add_result(id, *output);
    std::string text;
    for (const std::string& one : texts(item.at("output"), {"input_text", "text"}))
      text += (text.empty() ? "" : "\n") + one;
    conversation_.add_result(id, text);
  }

  /// The reasoning is its content, or the summary where the client has that alone.
  void read_reasoning(Fields& fields, const RequestValue& item) {
    fields.text("encrypted_content");  // nobody but its author can read it
    std::vector<std::string> all, summary;
    if (fields.find("content")) all = texts(item.at("content"), {"reasoning_text"});
    if (fields.find("summary")) summary = texts(item.at("summary"), {"summary_text"});
    for (const std::string& text : all.empty() ? summary : all) conversation_.add_reasoning(text);
  }

  Conversation& conversation_;
  UnknownFields& unknown_;
};

}  // namespace

void read_input_items(const RequestValue& input, Conversation& conversation, UnknownFields& unknown) {
  if (input.value.is_string()) {
    conversation.begin("user");
    return conversation.add_text("user", input.value.get<std::string>());
  }
  check_array(input.value, input.field, 1, max_items, "items; or a text");
  ItemReader reader(conversation, unknown);
  for (size_t i = 0; i < input.value.size(); ++i) reader.read(input.at(i));
}

}  // namespace pm::server
