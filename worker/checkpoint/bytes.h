// A file as a range of bytes that is read by position: what the readers of archives and headers work on, a file or a test's buffer.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace pm::checkpoint {

struct Bytes {
  std::string name;    ///< in errors
  int64_t size = 0;
  /// Fills the span from this position; the caller has checked that both lie inside. Throws Error{Model} when the file cannot be read.
  std::function<void(int64_t offset, std::span<char> out)> read;
};

/// `text` with '?' for control characters: what strangers wrote ends up in messages, logs and conditions.
std::string printable(std::string text);

/// Throws Error{Model, "ModelUnreadable"}: "<file>: <what>".
[[noreturn]] void refuse(const Bytes& file, const std::string& what);

/// The sentence that tells the owner of a checkpoint in another form how to make one that is served.
std::string how_to_convert();

}  // namespace pm::checkpoint
