// SPDX-License-Identifier: Apache-2.0
// Builds the messages of a chat completion from the turns, blocks or items of another wire form.
#pragma once
#include <map>
#include <nlohmann/json.hpp>
#include <string>

namespace pm::server {

class Conversation {
 public:
  using Json = nlohmann::ordered_json;  // templates see keys in the order of the request

  /// Continues messages that an earlier request left.
  explicit Conversation(Json messages = Json::array());
  /// Begins a message, though the last one has the same role.
  void begin(const std::string& role);
  /// Appends a text to the last message, or to a new one where that has another role.
  void add_text(const std::string& role, const std::string& text);
  /// Appends an image, of which `url` has the file or names it.
  void add_image(const std::string& role, const std::string& url);
  /// Appends to the assistant's message, as a text does.
  void add_reasoning(const std::string& text);
  /// `arguments` is an object, or a text that is no JSON object.
  void add_call(const std::string& id, const std::string& name, Json arguments);
  /// The same for a tool whose input is a text.
  void add_custom_call(const std::string& id, const std::string& name, const std::string& input);
  /// Adds the message with a tool's result. It names the tool where its call has come before.
  void add_result(const std::string& call_id, const std::string& text);

  /// Returns whether the last message is one of the assistant that calls no tool.
  bool ends_with_answer() const;
  /// Returns the messages as chat completions take them: one text is a string; several, and images, are parts.
  Json messages() const;

 private:
  Json& turn(const std::string& role);

  Json messages_;
  std::map<std::string, std::string> tool_names_;  ///< by the id of the call
};

}  // namespace pm::server
