#include "controller/client/base64.h"

#include <cstdint>

namespace pm::k8s {
namespace {

int value_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  std::string out;
  uint32_t bits = 0;
  int digits = 0, padding = 0;
  for (char c : text) {
    if (c == '\n' || c == '\r' || c == ' ' || c == '\t') continue;
    if (c == '=') {
      ++padding;
      continue;
    }
    const int value = value_of(c);
    if (value < 0 || padding) return {};
    bits = bits << 6 | static_cast<uint32_t>(value);
    if (++digits % 4 != 1) out += static_cast<char>(bits >> (6 - 2 * ((digits - 1) % 4)) & 0xff);
  }
  if (digits % 4 == 1 || padding > 2 || (padding && (digits + padding) % 4)) return {};
  return out;
}

}  // namespace pm::k8s
