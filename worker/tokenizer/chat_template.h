// A conversation as the text that the model was trained on, by the checkpoint's own Jinja template (worker/tokenizer/ffi/src/chat.rs).
#pragma once
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace pm {

/// One handle serves any number of threads; copies share it.
class ChatTemplate {
 public:
  /// Of a checkpoint folder: chat_template.jinja (with additional_chat_templates/), else `chat_template` of tokenizer_config.json, a text or named
  /// ones, else chat_template.json. Nothing for a folder without one. Throws Error{Model, "ModelUnreadable"} for one that is not Jinja.
  static std::optional<ChatTemplate> find(const std::filesystem::path& folder);
  /// The prompt of `conversation`, JSON: {"messages": [...], "tools", "documents", "add_generation_prompt", "continue_final_message", "kwargs":
  /// {...} (more for the template), "now": seconds (for templates that tell the date), "developer_is_system" (where the template does not know
  /// OpenAI's newer name)}. Equal to transformers' apply_chat_template(tokenize=False).
  /// Throws Error{Request, "InvalidRequest"} with the template's own words where it refuses the messages.
  std::string render(std::string_view conversation) const;

 private:
  explicit ChatTemplate(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<void> handle_;
};

}  // namespace pm
