// SPDX-License-Identifier: Apache-2.0
#include "worker/server/serving/content_form.h"

#include "worker/base/error.h"

namespace pm::server {
namespace {

using nlohmann::json;

constexpr const char* probe = "PROBEOFCONTENT";

/// Returns whether the template prints the probe in this content, and nothing of how it is written as JSON.
bool prints(const ChatTemplate& chat_template, const json& content) {
  const json conversation = {{"messages", {{{"role", "user"}, {"content", content}}}},
                             {"add_generation_prompt", false},
                             {"continue_final_message", false},
                             {"kwargs", json::object()}};
  try {
    const std::string text = chat_template.render(conversation.dump());
    return text.find(probe) != std::string::npos && text.find("'type'") == std::string::npos &&
           text.find("\"type\"") == std::string::npos;
  } catch (const Error&) {
    return false;  // it refuses such content
  }
}

}  // namespace

ContentForm find_content_form(const std::optional<ChatTemplate>& chat_template, const Tokenizer* tokenizer,
                              const Capabilities& capabilities) {
  ContentForm form;
  if (!capabilities.images_refusal.empty()) form.refusal = "images are not served: " + capabilities.images_refusal;
  if (!chat_template) return form;
  form.parts = prints(*chat_template, json::array({{{"type", "text"}, {"text", probe}}}));
  form.texts = prints(*chat_template, probe) || !form.parts;
  if (!capabilities.prompt_images || !tokenizer) return form;
  form.images = capabilities.images.has_value();
  form.image = tokenizer->id_to_token(static_cast<int32_t>(capabilities.prompt_images->spelling.placeholder));
  return form;
}

}  // namespace pm::server
