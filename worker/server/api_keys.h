// The API keys of a mounted Secret: every file is one. Keys can be exchanged while the server runs.
#pragma once
#include <array>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace pm::server {

/// Holds digests of the keys, never the keys, and logs none. Thread-safe.
class ApiKeys {
 public:
  using Clock = std::function<std::chrono::steady_clock::time_point()>;
  /// Reads every file of `folder` but those whose names begin with a dot; white space around a key is dropped. Throws Error{Usage,
  /// "ApiKeysUnreadable"} when there is no key: a server that is meant to be locked must not stand open, nor lock everybody out unnoticed.
  explicit ApiKeys(std::filesystem::path folder, Clock clock = std::chrono::steady_clock::now);
  /// Whether an Authorization header carries one of the keys as "Bearer KEY". The time it takes does not depend on which, or on how much of
  /// it is right. Reads the folder again when the last time is more than a second ago; one that cannot be read leaves the keys as they are.
  bool allow(std::string_view authorization);

 private:
  using Digest = std::array<uint8_t, 32>;
  void refresh();

  const std::filesystem::path folder_;
  const Clock clock_;
  std::mutex mutex_;
  std::vector<Digest> digests_;
  std::chrono::steady_clock::time_point read_;
};

}  // namespace pm::server
