// SPDX-License-Identifier: Apache-2.0
// How a chat template takes the content of a message: as one text, or as parts.
#pragma once
#include <optional>
#include <string>

#include "worker/server/serving/capabilities.h"
#include "worker/tokenizer/chat_template.h"
#include "worker/tokenizer/tokenizer.h"

namespace pm::server {

/// Templates of models that read texts alone take a text. Those of others mostly go through parts, {"type": "text"} and
/// {"type": "image"}; of a text these print nothing, or refuse it.
struct ContentForm {
  bool images = false;  ///< the model reads images among the tokens of a prompt
  bool parts = false;   ///< the template goes through parts
  bool texts = true;    ///< the template prints a text
  std::string refusal = "this route takes no images, sounds or files";  ///< where it reads no images: why
  std::string image;  ///< what stands for an image in a text, where the template does not go through parts
};

/// Finds the form by rendering a short conversation of each.
ContentForm find_content_form(const std::optional<ChatTemplate>&, const Tokenizer*, const Capabilities&);

}  // namespace pm::server
