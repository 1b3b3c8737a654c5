// SPDX-License-Identifier: Apache-2.0
// Trims white space of ASCII around a text.
#pragma once
#include <algorithm>
#include <string_view>

namespace pm::base {

constexpr std::string_view trimmed(std::string_view text) {
  constexpr std::string_view white_space = " \t\r\n\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(white_space), text.size()));
  return text.substr(0, text.find_last_not_of(white_space) + 1);
}

}  // namespace pm::base
