#include "controller/operator/hash.h"

#include <openssl/sha.h>

namespace pm::op {

std::string digest_of(std::string_view text) {
  std::string digest(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), reinterpret_cast<unsigned char*>(digest.data()));
  return digest;
}

std::string hash_of(const k8s::Json& value) {
  static constexpr char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";   // RFC 4648, lower case
  const std::string digest = digest_of(value.dump(-1, ' ', true, k8s::Json::error_handler_t::replace));   // objects are sorted by key
  std::string out;
  uint64_t bits = 0;
  for (int i = 0; i < 7; ++i) bits = bits << 8 | static_cast<unsigned char>(digest[i]);
  for (int i = 0; i < 10; ++i) out += alphabet[bits >> (51 - 5 * i) & 31];
  return out;
}

}  // namespace pm::op
