// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/percent_encoding.h"

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

std::string percent_decode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? digit(text[i + 1]) : -1, low = i + 2 < text.size() ? digit(text[i + 2]) : -1;
    if (high < 0 || low < 0)
      throw ApiError(400, "invalid_value",
                     "the path has \"" + std::string(text.substr(i, 3)) +
                         "\"; a percent sign needs two hexadecimal digits, and is itself %25");
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!query.empty()) {
    const auto pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const auto equals = pair.find('=');
    pairs.emplace_back(percent_decode(pair.substr(0, equals)),
                       equals == pair.npos ? "" : percent_decode(pair.substr(equals + 1)));
  }
  return pairs;
}

}  // namespace pm::server
