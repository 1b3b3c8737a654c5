// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace pm::base {
namespace {

constexpr std::string_view alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int8_t invalid = -1, white_space = -2, padding = -3;

/// The value of each character: 0 to 63, or one of the constants above.
constexpr std::array<int8_t, 256> make_values() {
  std::array<int8_t, 256> values{};
  values.fill(invalid);
  for (size_t i = 0; i < alphabet.size(); ++i) values[static_cast<uint8_t>(alphabet[i])] = static_cast<int8_t>(i);
  values['-'] = 62;
  values['_'] = 63;
  for (const char space : {' ', '\n', '\r', '\t'}) values[static_cast<uint8_t>(space)] = white_space;
  values['='] = padding;
  return values;
}

}  // namespace

std::string encode_base64(std::string_view bytes) {
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (k < left ? static_cast<uint8_t>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k) text += k <= left ? alphabet[three >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::optional<std::string> decode_base64(std::string_view text) {
  static constexpr auto values = make_values();
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 3);
  uint32_t bits = 0;
  int unread = 0;  // bits that no byte has taken yet
  size_t letters = 0, paddings = 0;
  for (const char letter : text) {
    const int8_t value = values[static_cast<uint8_t>(letter)];
    if (value == white_space) continue;
    if (value == padding) {
      if (++paddings > 2) return std::nullopt;
      continue;
    }
    if (value == invalid || paddings > 0) return std::nullopt;
    ++letters;
    bits = bits << 6 | static_cast<uint32_t>(value);
    unread += 6;
    if (unread < 8) continue;
    unread -= 8;
    bytes += static_cast<char>(bits >> unread & 0xff);
  }
  const bool padded = (letters + paddings) % 4 == 0;
  if (letters % 4 == 1 || (paddings > 0 && !padded)) return std::nullopt;
  return bytes;
}

}  // namespace pm::base
