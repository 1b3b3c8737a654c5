// Places in a text: bytes, as the tokenizer counts, and characters, as replies count.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace pm::server {

class TextPlaces {
 public:
  explicit TextPlaces(std::string_view utf8) {
    for (size_t i = 0; i < utf8.size(); ++i)
      if ((static_cast<uint8_t>(utf8[i]) & 0xC0) != 0x80) starts_.push_back(i);
  }
  /// How many characters begin before byte `at`.
  size_t character(size_t at) const { return static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end(), at) - starts_.begin()); }

 private:
  std::vector<size_t> starts_;   ///< first byte of each character
};

}  // namespace pm::server
