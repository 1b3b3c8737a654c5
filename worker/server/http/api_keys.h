// SPDX-License-Identifier: Apache-2.0
// API keys from the files of a folder, such as a mounted Secret. Keys can be replaced while the server runs.
#pragma once
#include <chrono>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pm::server {

/// Checks API keys. It stores only SHA-256 digests of the keys and logs none. Thread-safe.
class ApiKeys {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  /// Reads every file of `folder` whose name does not begin with a dot and trims white space around the key. Throws
  /// Error{ApiKeysUnreadable} if there is no key, because the server would otherwise be open or refuse every
  /// request.
  explicit ApiKeys(std::filesystem::path folder, Clock clock = std::chrono::steady_clock::now);
  /// Returns whether an Authorization header has one of the keys as "Bearer KEY", in constant time. Reads the folder
  /// again if the last read is more than a second ago; if that fails, the keys stay unchanged.
  bool allow(std::string_view authorization);

 private:
  void refresh();

  const std::filesystem::path folder_;
  const Clock clock_;
  std::mutex mutex_;
  std::vector<std::string> digests_;  ///< sorted
  std::chrono::steady_clock::time_point last_read_;
};

}  // namespace pm::server
