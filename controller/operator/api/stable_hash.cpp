// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/api/stable_hash.h"

#include <cstdint>

#include "base/digest.h"

namespace pm::op {

std::string short_hash(const k8s::Json& value) {
  static constexpr char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";  // RFC 4648, lower case
  const std::string digest =
      base::sha256(value.dump(-1, ' ', true, k8s::Json::error_handler_t::replace));  // objects are sorted by key
  std::string out;
  uint64_t bits = 0;
  for (int i = 0; i < 7; ++i) bits = bits << 8 | static_cast<unsigned char>(digest[i]);
  for (int i = 0; i < 10; ++i) out += alphabet[bits >> (51 - 5 * i) & 31];
  return out;
}

}  // namespace pm::op
