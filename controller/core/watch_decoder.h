// SPDX-License-Identifier: Apache-2.0
// Decodes the byte stream of a watch into events: one JSON document per line, in chunks of any size.
#pragma once
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "controller/core/request.h"

namespace pm::k8s {

/// One event of a watch.
struct WatchEvent {
  enum class Type { Added, Modified, Deleted, Bookmark, Error };
  Type type = Type::Added;
  Json object;  ///< metadata only for Bookmark, a Status for Error
  bool operator==(const WatchEvent&) const = default;
};

/// Splits the stream into lines and parses them. Memory is bounded by max_line.
class WatchDecoder {
 public:
  /// max_line in bytes; etcd limits an object to 1.5 MiB by default, and JSON may be several times that.
  explicit WatchDecoder(size_t max_line = size_t{16} << 20) : max_line_(max_line) {}

  /// Feeds the next bytes; hands each complete event to `sink`. Returns false as soon as `sink` does, or when the
  /// stream cannot be understood (then error() says why, and the decoder stays failed).
  bool feed(std::string_view bytes, const std::function<bool(WatchEvent&&)>& sink);
  const std::string& error() const { return error_; }
  /// True when bytes of an unfinished line are held: at the end of a stream this means that it was cut.
  bool partial() const { return !line_.empty(); }

 private:
  bool take(std::string_view line, const std::function<bool(WatchEvent&&)>& sink);
  size_t max_line_;
  std::string line_, error_;
};

}  // namespace pm::k8s
