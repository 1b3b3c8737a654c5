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

/// One handle serves any number of threads; copies share it.
class Tokenizer {
 public:
  /// From tokenizer.json of a checkpoint folder. Throws Error{Model, "ModelUnreadable"} when it is absent or broken.
  static Tokenizer open(const std::filesystem::path& folder);
  /// Ids of UTF-8 `text`; `special` adds the special tokens that the checkpoint's post-processor adds.
  /// Throws Error{Request, "InvalidRequest"} for bytes that are not UTF-8.
  std::vector<int32_t> encode(std::string_view text, bool special = true) const;
  /// Text of `ids`, always valid UTF-8: bytes that form no character become U+FFFD, ids outside the vocabulary nothing.
  std::string decode(std::span<const int32_t> ids, bool skip_special = true) const;
  /// Number of ids, added tokens included.
  size_t vocab_size() const;

 private:
  explicit Tokenizer(std::shared_ptr<void> handle) : handle_(std::move(handle)) {}
  std::shared_ptr<void> handle_;
};

/// Turns a stream of ids into text pieces that are whole UTF-8 characters: an id that ends inside a character is held back.
/// The pieces joined are what decoding all ids at once gives.
class Detokenizer {
 public:
  /// `before` is what the stream continues (the prompt's ids): decoders that drop a leading space need to know that it is not the start.
  explicit Detokenizer(const Tokenizer& tokenizer, std::span<const int32_t> before = {});
  /// Text that became complete with `id`.
  std::string push(int32_t id);
  /// What is left at the end of the stream; bytes that never became a character come out as U+FFFD.
  std::string flush();

 private:
  std::string emit(bool complete);

  const Tokenizer& tokenizer_;
  std::vector<int32_t> ids_;   ///< a window: context already emitted, then the ids not yet emitted
  size_t read_ = 0;            ///< ids_[0, read_) are emitted
  size_t mark_ = 0;            ///< an earlier value of read_, so no character crosses it: where the window may next begin
};

}  // namespace pm
