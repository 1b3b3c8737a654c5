// SPDX-License-Identifier: Apache-2.0
// The special tokens of a decoder prompt of speech: language, task, timestamps.
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

namespace pm::server {

/// What generation_config.json says of the beginning of a decoder's sequence (Radford et al. 2022, Whisper): the text
/// that went before, the start token, the language, the task, and whether times are left out.
struct SpeechTokens {
  int64_t vocabulary = 0;                    ///< of the model's scores
  int32_t no_timestamps = 0;                 ///< no times are written; the tokens of times follow this one
  std::map<std::string, int32_t> languages;  ///< by code, "en"; empty: the model has one language and one task
  std::map<std::string, int32_t> tasks;      ///< "transcribe", "translate"
  std::optional<int32_t> previous;           ///< before the text that went before; nothing: the model reads none
  std::optional<int64_t> most_initial;       ///< number of the last token of times that may be the first one
  std::string language;                      ///< where a request names none; empty: it is recognized

  int32_t first_timestamp() const { return no_timestamps + 1; }
  bool translates() const { return tasks.contains("translate"); }

  /// Reads the file; returns nothing where it is missing or has no no_timestamps_token_id. Throws
  /// Error{ModelUnreadable} for ids outside of the vocabulary.
  static std::optional<SpeechTokens> read(const std::filesystem::path& folder, int64_t vocabulary);
};

}  // namespace pm::server
