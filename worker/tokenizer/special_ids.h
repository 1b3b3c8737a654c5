// Which token of a vocabulary is the mask, the padding, ...: what a checkpoint's own files say.
#pragma once
#include <filesystem>

#include "worker/tokenizer/tokenizer.h"

namespace pm {

/// Roles by tokenizer_config.json, then special_tokens_map.json ("mask_token": "[MASK]" or {"content": "[MASK]"}); a role that neither
/// names is looked for under its usual spellings among the tokenizer's tokens. A file that is no JSON object is
/// Error{Model, "ModelUnreadable"}; a name that the vocabulary lacks leaves its role empty.
SpecialIds special_ids(const std::filesystem::path& folder, const Tokenizer& tokenizer);

}  // namespace pm
