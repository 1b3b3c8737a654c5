// SPDX-License-Identifier: Apache-2.0
#include "worker/tokenizer/gguf_tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "worker/base/error.h"
#include "worker/checkpoint/gguf/gguf_tokenizer.h"
#include "worker/tokenizer/buffer.h"

namespace pm {

TokenizerFiles make_gguf_tokenizer_files(const std::filesystem::path& folder) {
  const std::string gguf = checkpoint::read_gguf_tokenizer(folder, checkpoint::GgufVocabulary::Included);
  if (gguf.empty()) return {};
  Buffer text, why;
  if (tx_gguf_tokenizer_json(folder.c_str(), gguf.c_str(), &text, &why) != 0)
    throw Error(Reason::ModelUnreadable, why.text());
  if (text.text().empty()) return {.why = why.text()};
  nlohmann::json config = nlohmann::json::parse(gguf).at("settings");
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  return {.tokenizer = text.text(), .config = config.dump(2) + "\n"};
}

}  // namespace pm
