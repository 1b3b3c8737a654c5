// Text to token ids and back, by the Hugging Face tokenizers crate behind a C ABI (worker/tokenizer/ffi).
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace pm {

/// One handle serves any number of threads.
class Tokenizer {
 public:
  /// From tokenizer.json of a checkpoint folder. Throws Error{Model, "ModelUnreadable"} when it is absent or broken.
  static Tokenizer open(const std::filesystem::path& folder);
  /// Ids of UTF-8 `text`; `special` adds the special tokens that the checkpoint's post-processor adds. Throws Error{Request} for bad UTF-8.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;
  size_t vocab_size() const;

 private:
  std::shared_ptr<void> handle_;
};

/// Turns a stream of ids into text pieces that are whole UTF-8 characters: an id that ends inside a character is held back.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  /// Text that became complete with `id`.
  std::string push(int32_t id);
  /// What is left at the end of the stream.
  std::string flush();

 private:
  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;
  size_t prefix_ = 0, read_ = 0;
};

}  // namespace pm
