// SPDX-License-Identifier: Apache-2.0
#include "base/percent.h"

namespace pm::base {

std::string percent_encode(std::string_view text, std::string_view keep) {
  static constexpr char digits[] = "0123456789ABCDEF";
  const auto unreserved = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
           std::string_view("-._~").find(c) != std::string_view::npos;
  };
  std::string out;
  for (const char c : text) {
    if (unreserved(c) || keep.find(c) != std::string_view::npos)
      out += c;
    else
      out += {'%', digits[static_cast<unsigned char>(c) >> 4], digits[c & 15]};
  }
  return out;
}

}  // namespace pm::base
