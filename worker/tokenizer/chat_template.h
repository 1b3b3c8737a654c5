// SPDX-License-Identifier: Apache-2.0
// Chat templates: renders a conversation as the prompt that the model was trained on, with the checkpoint's own Jinja
// template (worker/tokenizer/ffi/src/chat.rs).
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pm {

/// A chat template. One handle serves any number of threads; copies share it.
class ChatTemplate {
 public:
  /// Reads the template of a checkpoint folder: chat_template.jinja (with additional_chat_templates/), else
  /// `chat_template` of tokenizer_config.json (one template, or several with names), else chat_template.json. Returns
  /// nothing for a folder without one. Throws Error{ModelUnreadable} for one that is not Jinja.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder);
  /// Renders the prompt of `conversation`, a JSON object {"messages": [...], "tools", "documents",
  /// "add_generation_prompt", "continue_final_message", "kwargs": {...} (extra template variables), "now": seconds (for
  /// templates that print the date), "developer_is_system" (for templates that do not know the role "developer")}. The
  /// result equals transformers' apply_chat_template(tokenize=False). Throws Error{InvalidRequest} with the
  /// template's own message where it refuses the messages.
  std::string render(std::string_view conversation) const;

 private:
  explicit ChatTemplate(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<void> handle_;
};

}  // namespace pm
