// SPDX-License-Identifier: Apache-2.0
// The files of the tokenizer that a GGUF file has in its metadata, for a folder without that file.
#pragma once
#include <filesystem>
#include <string>

namespace pm {

struct TokenizerFiles {
  std::string tokenizer, config;  ///< texts of tokenizer.json and tokenizer_config.json; empty: there are none
  std::string why;                ///< there are none
};

/// Returns the files of the folder's GGUF model; nothing, without a reason, for a folder that has none. Throws
/// Error{ModelUnreadable} for a tokenizer that is broken.
TokenizerFiles make_gguf_tokenizer_files(const std::filesystem::path& folder);

}  // namespace pm
