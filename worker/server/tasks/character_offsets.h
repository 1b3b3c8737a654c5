// SPDX-License-Identifier: Apache-2.0
// Converts byte offsets, which the tokenizer counts, to character offsets, which replies count.
#pragma once
#include <algorithm>
#include <string_view>
#include <vector>

#include "base/utf8.h"

namespace pm::server {

class CharacterOffsets {
 public:
  explicit CharacterOffsets(std::string_view utf8) {
    for (size_t i = 0; i < utf8.size(); ++i)
      if (!base::continues_character(utf8[i])) starts_.push_back(i);
  }
  /// Returns the number of characters that begin before byte `at`.
  size_t character(size_t at) const {
    return static_cast<size_t>(std::lower_bound(starts_.begin(), starts_.end(), at) - starts_.begin());
  }

 private:
  std::vector<size_t> starts_;  ///< offset of the first byte of each character
};

}  // namespace pm::server
