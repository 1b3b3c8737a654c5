// SPDX-License-Identifier: Apache-2.0
// Which GGUF files of a folder or a repository are one model.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

namespace pm::checkpoint {

/// Returns the files of the only model in GGUF among `names`: one file, or all parts of a split one
/// (NAME-00001-of-00003.gguf, ...) in their order; nothing where there is none. Files that do not hold a language model
/// (mmproj*.gguf) do not count. Throws Error{ModelUnreadable}, which begins with `where`, for several models and for
/// absent parts.
std::vector<std::string> choose_gguf_files(const std::vector<std::string>& names, const std::string& where);

/// Returns those of a folder; nothing where its weights are in another format, which comes first.
std::vector<std::string> gguf_files_in(const std::filesystem::path& folder);

}  // namespace pm::checkpoint
