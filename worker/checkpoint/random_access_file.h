// SPDX-License-Identifier: Apache-2.0
// A file that is read by position. The readers of archives and headers work on it; it may be a file, a remote file or a
// test's buffer.
#pragma once
#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace pm::checkpoint {

struct RandomAccessFile {
  std::string name;  ///< names the file in errors
  int64_t size = 0;
  /// Fills the span from this position; the caller has checked that the range lies inside the file. Throws Error{Model}
  /// when the file cannot be read.
  std::function<void(int64_t offset, std::span<char> out)> read;
};

/// Replaces control characters of `text` by '?', because untrusted text ends up in messages, logs and conditions.
std::string printable(std::string text);

/// Throws Error{ModelUnreadable}: "<file>: <what>".
[[noreturn]] void refuse(const RandomAccessFile& file, const std::string& what);

/// Returns the sentence that tells how to convert a checkpoint of another format.
std::string how_to_convert();

}  // namespace pm::checkpoint
