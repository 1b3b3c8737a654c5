// SPDX-License-Identifier: Apache-2.0
#include "controller/client/token.h"

#include "base/log.h"

namespace pm::k8s {
namespace {

constexpr std::chrono::seconds max_age{60};

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  return begin == std::string::npos ? "" : text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

}  // namespace

std::string Token::get() {
  if (source_.file.empty()) return source_.data;
  std::lock_guard lock(mutex_);
  const auto now = clock_.now();
  if (read_at_ && now - *read_at_ < max_age) return value_;
  try {
    const std::string fresh = trimmed(source_.read());
    if (!fresh.empty()) value_ = fresh;
  } catch (const ConfigError& error) {
    LOG(WARNING) << "token: " << error.what() << "; keeping the old one";
  }
  read_at_ = now;
  return value_;
}

void Token::expire() {
  std::lock_guard lock(mutex_);
  read_at_.reset();
}

}  // namespace pm::k8s
