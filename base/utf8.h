// SPDX-License-Identifier: Apache-2.0
// Truncates UTF-8 text between characters.
#pragma once
#include <cstddef>
#include <string_view>

namespace pm::base {

/// Returns whether the byte continues a UTF-8 character instead of beginning one.
constexpr bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

/// Returns the beginning of `text`: at most `max_bytes` bytes that split no UTF-8 character.
constexpr std::string_view truncate_utf8(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && continues_character(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

}  // namespace pm::base
