// See api_keys.h.
#include "worker/server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <cctype>
#include <fstream>
#include <iterator>
#include <optional>

#include "worker/base/error.h"
#include "worker/base/log.h"

namespace pm::server {
namespace {

constexpr std::chrono::seconds kRefresh{1};
constexpr size_t kLongest = 4096;   ///< bytes of a key; no client sends more in a header

std::array<uint8_t, 32> digest_of(std::string_view key) {
  std::array<uint8_t, 32> digest{};
  if (EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr) != 1) throw std::runtime_error("SHA-256 failed");
  return digest;
}

std::string_view trimmed(std::string_view text) {
  const auto white = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && white(text.front())) text.remove_prefix(1);
  while (!text.empty() && white(text.back())) text.remove_suffix(1);
  return text;
}

/// Whether a header can carry it.
bool sendable(std::string_view key) {
  return std::all_of(key.begin(), key.end(), [](unsigned char c) { return c > ' ' && c < 127; });
}

std::vector<std::array<uint8_t, 32>> read_keys(const std::filesystem::path& folder) {
  // the kubelet exchanges all files at once by the link ..data: read them behind one state of it
  std::error_code none;
  const auto data = std::filesystem::canonical(folder / "..data", none);
  std::vector<std::array<uint8_t, 32>> digests;
  for (const auto& entry : std::filesystem::directory_iterator(none ? folder : data)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with('.') || !entry.is_regular_file()) continue;
    std::ifstream in(entry.path(), std::ios::binary);
    std::string content(kLongest + 1, '\0');
    in.read(content.data(), static_cast<std::streamsize>(content.size()));
    content.resize(static_cast<size_t>(in.gcount()));
    const auto key = trimmed(content);
    if (in.bad() || key.empty() || content.size() > kLongest || !sendable(key)) {
      LOG(WARNING) << "the file " << name << " holds no API key: one line of printable ASCII without spaces is needed, of at most " << kLongest << " bytes";
      continue;
    }
    digests.push_back(digest_of(key));
  }
  std::sort(digests.begin(), digests.end());
  return digests;
}

/// What stands behind "Bearer ", whose case does not matter.
std::optional<std::string_view> bearer(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return std::nullopt;
  for (size_t i = 0; i < kScheme.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(authorization[i])) != kScheme[i]) return std::nullopt;
  return trimmed(authorization.substr(kScheme.size()));
}

}  // namespace

ApiKeys::ApiKeys(std::filesystem::path folder, Clock clock) : folder_(std::move(folder)), clock_(std::move(clock)), read_(clock_()) {
  const std::string needed = "; a folder with a file per key is needed, as a mounted Secret is";
  try {
    digests_ = read_keys(folder_);
  } catch (const std::filesystem::filesystem_error& error) {
    throw Error(ErrorKind::Usage, "ApiKeysUnreadable", std::string(error.what()) + needed);
  }
  if (digests_.empty()) throw Error(ErrorKind::Usage, "ApiKeysUnreadable", folder_.string() + " holds no API key" + needed);
}

void ApiKeys::refresh() {
  const auto now = clock_();
  if (now - read_ < kRefresh) return;
  read_ = now;
  try {
    auto digests = read_keys(folder_);
    if (digests != digests_) LOG(INFO) << "API keys have changed: " << digests.size() << " now";
    digests_ = std::move(digests);
  } catch (const std::filesystem::filesystem_error& error) {
    LOG(WARNING) << "API keys stay as they are: " << error.what();
  }
}

bool ApiKeys::allow(std::string_view authorization) {
  const auto key = bearer(authorization);
  const Digest asked = digest_of(key.value_or(""));
  std::lock_guard lock(mutex_);
  refresh();
  int found = 0;
  for (const Digest& digest : digests_) found |= static_cast<int>(CRYPTO_memcmp(digest.data(), asked.data(), asked.size()) == 0);
  return key.has_value() && found != 0;
}

}  // namespace pm::server
