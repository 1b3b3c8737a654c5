// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/api_keys.h"

#include <openssl/crypto.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/digest.h"
#include "worker/base/error.h"

#include "base/log.h"

namespace pm::server {
namespace {

constexpr std::chrono::seconds refresh_interval{1};
constexpr size_t max_key_bytes = 4096;  ///< bytes of a key; no client sends more in a header

std::string_view trimmed(std::string_view text) {
  const auto white = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && white(text.front())) text.remove_prefix(1);
  while (!text.empty() && white(text.back())) text.remove_suffix(1);
  return text;
}

/// Returns whether a header can carry the key.
bool sendable(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

std::vector<std::string> read_keys(const std::filesystem::path& folder) {
  // the kubelet replaces all files atomically by the symlink ..data, so they are read through one resolved target
  std::error_code none;
  const auto data = std::filesystem::canonical(folder / "..data", none);
  std::vector<std::string> digests;
  for (const auto& entry : std::filesystem::directory_iterator(none ? folder : data)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || !entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string content(max_key_bytes + 1, '\0');
    in.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<size_t>(in.gcount()));
    const auto key = trimmed(content);
    if (in.bad() || key.empty() || content.size() > max_key_bytes || !sendable(key)) {
      LOG(WARNING) << "the file " << name
                   << " has no valid API key; expected one line of printable ASCII without spaces, of at most "
                   << max_key_bytes << " bytes";
      continue;
    }
    digests.push_back(base::sha256(key));
  }
  std::sort(digests.begin(), digests.end());
  return digests;
}

/// Returns the credentials after "Bearer ", whose case does not matter.
std::optional<std::string_view> bearer(std::string_view authorization) {
  constexpr std::string_view auth_scheme = "bearer ";
  if (authorization.size() < auth_scheme.size()) return std::nullopt;
  for (size_t i = 0; i < auth_scheme.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != auth_scheme[i]) return std::nullopt;
  return trimmed(authorization.substr(auth_scheme.size()));
}

}  // namespace

ApiKeys::ApiKeys(std::filesystem::path folder, Clock clock)
    : folder_(std::move(folder)), clock_(std::move(clock)), last_read_(clock_()) {
  const std::string needed = "; expected a folder with one file per key, such as a mounted Secret";
  try {
    digests_ = read_keys(folder_);
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(Reason::ApiKeysUnreadable, std::string(error.what()) + needed);
  }
  if (digests_.empty()) throw Error(Reason::ApiKeysUnreadable, folder_.string() + " holds no API key" + needed);
}

void ApiKeys::refresh() {
  const auto now = clock_();
  if (now - last_read_ < refresh_interval) return;
  last_read_ = now;
  try {
    auto digests = read_keys(folder_);
    if (digests != digests_) LOG(INFO) << "loaded " << digests.size() << " changed API keys";
    digests_ = std::move(digests);
  } catch (const std::filesystem::filesystem_error& error) {
    LOG(WARNING) << "cannot read the API keys again; the loaded ones stay in use: " << error.what();
  }
}

bool ApiKeys::allow(std::string_view authorization) {
  const auto key = bearer(authorization);
  const std::string received = base::sha256(key.value_or(""));
  std::lock_guard lock(mutex_);
  refresh();
  int found = 0;
  for (const std::string& digest : digests_)
    found |= static_cast<int>(CRYPTO_memcmp(digest.data(), received.data(), received.size()) == 0);
  return key.has_value() && found != 0;
}

}  // namespace pm::server
