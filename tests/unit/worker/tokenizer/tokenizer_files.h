// SPDX-License-Identifier: Apache-2.0
// Hand-written tokenizer.json files, small enough to know every id.
#pragma once
#include <filesystem>
#include <string>

namespace pm::test {

/// A temporary folder.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// Byte-level BPE without merges: id = byte value 0..255, then 256 = "<|end|>" (special).
std::string byte_level_json();
/// The same with tokens of several letters, digits and punctuation, `size` of them in all.
std::string large_byte_level_json(size_t size);
/// Sentencepiece-like: ids 0..255 the byte tokens <0x00>..<0xFF>, 256 "▁a", 257 "▁b", 258 "b"; decoder joins bytes,
/// drops one leading space.
std::string byte_fallback_json();
/// WordLevel over whitespace: {"hello": 0, "world": 1, "[UNK]": 2, "[CLS]": 3}; the post-processor adds [CLS] at the
/// front.
std::string word_level_json();

void write_tokenizer(const std::filesystem::path& folder, const std::string& json);

}  // namespace pm::test
