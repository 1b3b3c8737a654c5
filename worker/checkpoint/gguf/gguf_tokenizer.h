// SPDX-License-Identifier: Apache-2.0
// What a GGUF file says about its tokenizer, for worker/tokenizer.
#pragma once
#include <filesystem>
#include <string>

#include "worker/checkpoint/random_access_file.h"

namespace pm::checkpoint {

enum class GgufVocabulary : uint8_t { Omitted, Included };

/// Returns the tokenizer's metadata of the folder's GGUF model as JSON; empty where the folder has none:
/// {"architecture", "model", "pre", "settings"}, and with the vocabulary {"tokens", "scores", "token_type", "merges"},
/// each null where the file lacks it. `settings` has the keys of tokenizer_config.json: bos_token, eos_token,
/// unk_token, pad_token, add_bos_token, add_eos_token, add_prefix_space and chat_template. Throws
/// Error{ModelUnreadable} for ids without a token and for lists of unequal lengths or of other types.
std::string read_gguf_tokenizer(const std::filesystem::path& folder, GgufVocabulary);
/// Returns that of one file, the first of its model.
std::string read_gguf_tokenizer(const RandomAccessFile&, GgufVocabulary);

}  // namespace pm::checkpoint
