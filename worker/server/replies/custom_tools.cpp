// SPDX-License-Identifier: Apache-2.0
#include "worker/server/replies/custom_tools.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "worker/server/http/api_error.h"
#include "worker/server/replies/constraint.h"

namespace pm::server {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr const char* input_name = "input";

std::string required(Fields& fields, const std::string& name) {
  const auto text = fields.text(name);
  if (!text || text->empty())
    throw ApiError(400, text ? "invalid_value" : "missing_field",
                   fields.path(name) + (text ? " is empty" : " is missing") + "; a text is expected",
                   fields.path(name));
  return *text;
}

/// Returns an object of a field; throws where it is none.
const json& object_in(Fields& fields, const std::string& name, const std::string& expected) {
  const json* found = fields.find(name);
  if (!found || !found->is_object())
    throw bad_field(fields.path(name), found ? json_excerpt(*found) : "missing", expected);
  return *found;
}

/// Reads {"type": "text"} or {"type": "grammar", "grammar": {"syntax", "definition"}}. No other field is ignored,
/// because it would constrain the input.
CustomTool read_format(const json& format, const std::string& field) {
  Fields fields(format, field);
  const auto type = fields.text("type");
  if (type != "text" && type != "grammar")
    throw bad_field(field + ".type", type ? json_excerpt(*type) : "missing", R"("text" or "grammar")");
  CustomTool tool;
  if (type == "grammar") {
    Fields grammar(object_in(fields, "grammar", "an object with syntax and definition"), field + ".grammar");
    tool = {required(grammar, "syntax"), required(grammar, "definition")};
    grammar.refuse_others();
    if (tool.syntax != "lark" && tool.syntax != "regex")
      throw bad_field(grammar.path("syntax"), json_excerpt(tool.syntax), R"("lark" or "regex")");
    if (tool.definition.size() > max_constraint_bytes)
      throw bad_field(grammar.path("definition"), std::to_string(tool.definition.size()) + " bytes",
                      "at most " + std::to_string(max_constraint_bytes) + " bytes");
  }
  fields.refuse_others();
  return tool;
}

std::string describe(const CustomTool& tool) {
  if (tool.syntax.empty()) return "Plain text";
  if (tool.syntax == "regex") return "A text that matches this regular expression as a whole:\n" + tool.definition;
  return "A text of this Lark grammar:\n" + tool.definition;
}

bool is_hexadecimal(char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; }

/// Returns the bytes of the escape that a text of JSON begins with, both of a surrogate pair; 0 where more have to
/// come.
size_t escape_bytes(std::string_view text) {
  if (text.size() < 2) return 0;
  if (text[1] != 'u') return 2;
  if (text.size() < 6) return 0;
  const bool is_high = (text[2] == 'd' || text[2] == 'D') && std::string_view("89abAB").find(text[3]) != text.npos;
  const std::string_view next = text.substr(6, 2);
  if (!is_high || next != std::string_view("\\u").substr(0, next.size())) return 6;
  return text.size() < 12 ? 0 : 12;
}

/// Appends the character of an escape. Returns the bytes that it has: what is no escape stands as it is, and half of a
/// surrogate pair is U+FFFD.
size_t append_escaped(std::string_view escape, std::string& to) {
  const json character = json::parse("\"" + std::string(escape) + "\"", nullptr, false);
  if (character.is_string()) {
    to += character.get_ref<const std::string&>();
    return escape.size();
  }
  const bool is_half = escape.size() >= 6 && std::all_of(escape.begin() + 2, escape.begin() + 6, is_hexadecimal);
  to += is_half ? "\uFFFD" : escape.substr(0, 2);
  return is_half ? 6 : 2;
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

}  // namespace

ordered_json read_custom_tool(const json& tool, const std::string& field, CustomTools& tools, UnknownFields& unknown) {
  Fields outer(tool, field);
  outer.find("type");
  Fields fields(object_in(outer, "custom", "an object with name"), field + ".custom");
  const std::string name = required(fields, "name");
  const auto description = fields.text("description");
  CustomTool made;
  if (fields.find("format"))
    made = read_format(object_in(fields, "format", "an object with type"), fields.path("format"));
  unknown.take(fields);
  unknown.take(outer);
  if (!tools.emplace(name, made).second)
    throw bad_field(fields.path("name"), json_excerpt(name), "a name that no other tool has");
  ordered_json function = {{"name", name}};
  if (description) function["description"] = *description;
  function["parameters"] = {{"type", "object"},
                            {"properties", {{input_name, {{"type", "string"}, {"description", describe(made)}}}}},
                            {"required", ordered_json::array({input_name})},
                            {"additionalProperties", false}};
  return {{"type", "function"}, {"function", std::move(function)}};
}

std::optional<std::string> whole_pattern(std::string_view expression) {
  bool in_class = false;
  int groups = 0;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\') {
      ++i;
    } else if (in_class || c == '[') {
      in_class = c != ']';
    } else if (c == '(' || c == ')') {
      groups += c == '(' ? 1 : -1;
      if (groups < 0) return std::nullopt;
    }
  }
  return "^(?:" + std::string(expression) + ")$";
}

ordered_json custom_arguments(const std::string& input) { return {{input_name, input}}; }

/// Reads up to the first character of the text, {"input": ", once it is there.
void CustomInput::read_opening() {
  size_t at = 0;
  const auto skip_space = [&] {
    while (at < text_.size() && is_space(text_[at])) ++at;
    return at < text_.size();
  };
  if (!skip_space()) return;
  if (text_[at] != '{') {
    state_ = State::Plain;
    return;
  }
  ++at;
  for (const std::string_view part : {"\"input\"", ":", "\""}) {
    if (!skip_space()) return;
    const std::string_view there = std::string_view(text_).substr(at, part.size());
    if (there != part.substr(0, there.size())) {
      state_ = State::Other;
      return;
    }
    if (there.size() < part.size()) return;
    at += part.size();
  }
  text_.erase(0, at);
  state_ = State::Inside;
}

/// Decodes the text up to its closing quote, or to what is there of it.
std::string CustomInput::decode() {
  std::string input;
  for (;;) {
    const size_t stop = text_.find_first_of("\"\\");
    input += text_.substr(0, stop);
    text_.erase(0, stop == text_.npos ? text_.size() : stop);
    if (text_.empty()) return input;
    if (text_.front() == '"') {
      state_ = State::Done;
      text_.clear();
      return input;
    }
    const size_t bytes = escape_bytes(text_);
    if (bytes == 0) return input;
    text_.erase(0, append_escaped(std::string_view(text_).substr(0, bytes), input));
  }
}

std::string CustomInput::feed(std::string_view arguments) {
  if (state_ == State::Done) return "";
  text_ += arguments;
  if (state_ == State::Opening) read_opening();
  if (state_ == State::Inside) return decode();
  return state_ == State::Plain ? std::exchange(text_, {}) : "";
}

std::string CustomInput::finish() {
  if (state_ != State::Other) return "";
  state_ = State::Done;
  const json whole = json::parse(text_, nullptr, false);
  if (!whole.is_object()) return std::exchange(text_, {});
  const auto found = whole.find(input_name);
  if (found != whole.end() && found->is_string()) return *found;
  return whole.empty() ? "" : std::exchange(text_, {});
}

}  // namespace pm::server
