// SPDX-License-Identifier: Apache-2.0
// The C++ side of chat templates.
#include "worker/tokenizer/chat_template.h"

#include "worker/base/error.h"
#include "worker/checkpoint/gguf/gguf_tokenizer.h"
#include "worker/tokenizer/buffer.h"

namespace pm {

std::optional<ChatTemplate> ChatTemplate::find(const std::filesystem::path& folder) {
  TxChat* handle = nullptr;
  Buffer error;
  const std::string gguf = checkpoint::read_gguf_tokenizer(folder, checkpoint::GgufVocabulary::Omitted);
  if (tx_chat_open(folder.c_str(), gguf.c_str(), &handle, &error) != 0)
    throw Error(Reason::ModelUnreadable, error.text());
  if (!handle) return std::nullopt;
  return ChatTemplate(std::shared_ptr<void>(handle, [](void* p) { tx_chat_free(static_cast<TxChat*>(p)); }));
}

std::string ChatTemplate::render(std::string_view conversation) const {
  Buffer text, error;
  const auto* json = reinterpret_cast<const uint8_t*>(conversation.data());
  const int status =
      tx_chat_render(static_cast<const TxChat*>(handle_.get()), json, conversation.size(), &text, &error);
  if (status != 0)
    throw Error(Reason::InvalidRequest, "the model's chat template does not take this conversation: " + error.text());
  return text.text();
}

}  // namespace pm
