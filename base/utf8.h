// SPDX-License-Identifier: Apache-2.0
// Counts characters of UTF-8 text, and truncates it between them.
#pragma once
#include <algorithm>
#include <cstddef>
#include <string_view>

namespace pm::base {

/// Returns whether the byte continues a UTF-8 character instead of beginning one.
constexpr bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }

constexpr size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return !continues_character(c); }));
}

/// Returns the beginning of `text`: at most `max_bytes` bytes that split no UTF-8 character.
constexpr std::string_view truncate_utf8(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  while (max_bytes > 0 && continues_character(text[max_bytes])) --max_bytes;
  return text.substr(0, max_bytes);
}

}  // namespace pm::base
