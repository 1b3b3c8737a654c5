// SPDX-License-Identifier: Apache-2.0
// Custom tools of OpenAI's API, whose input is a text. Models know functions alone: such a tool is shown to the chat
// template as a function with one parameter, and its input is taken out of the arguments of a call.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "worker/server/serving/unknown_fields.h"

namespace pm::server {

/// The grammar of a tool's input; with an empty syntax it is any text.
struct CustomTool {
  std::string syntax;      ///< "lark" or "regex"
  std::string definition;  ///< at most max_constraint_bytes
};
using CustomTools = std::map<std::string, CustomTool>;  ///< by their names

/// Reads {"type": "custom", "custom": {"name", "description", "format"}}, the tool with the name `field` in messages.
/// Adds it to `tools`, and returns the function that the template gets. Throws ApiError 400.
nlohmann::ordered_json read_custom_tool(const nlohmann::json& tool, const std::string& field, CustomTools& tools,
                                        UnknownFields&);

/// Returns the `pattern` of a JSON Schema that holds a text to a regular expression as a whole. Returns nothing where a
/// group is closed that is not open.
std::optional<std::string> whole_pattern(std::string_view expression);

/// Returns the arguments of a call of such a function.
nlohmann::ordered_json custom_arguments(const std::string& input);

/// Takes the input out of the arguments of a call while they come: the value of "input", decoded. Arguments that are
/// no object with such a text are the input themselves, as models may write them; an empty object is none.
class CustomInput {
 public:
  /// Reads more of the arguments. Returns what they add to the input.
  std::string feed(std::string_view arguments);
  /// Ends the arguments, which may be cut. Returns the rest of the input.
  std::string finish();

 private:
  enum class State { Opening, Inside, Done, Plain, Other };
  void read_opening();
  std::string decode();

  State state_ = State::Opening;
  std::string text_;  ///< not read yet; in Other all of the arguments
};

}  // namespace pm::server
