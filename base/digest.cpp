// SPDX-License-Identifier: Apache-2.0
#include "base/digest.h"

#include <openssl/evp.h>

#include <stdexcept>

namespace pm::base {

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(DigestAlgorithm algorithm) : context_(EVP_MD_CTX_new()) {
  const EVP_MD* type = algorithm == DigestAlgorithm::Sha1 ? EVP_sha1() : EVP_sha256();
  if (!context_ || EVP_DigestInit_ex(context_.get(), type, nullptr) != 1)
    throw std::runtime_error("OpenSSL gives no digest");
}

void Digest::update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Digest::finish() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), bytes, &size);
  return {reinterpret_cast<const char*>(bytes), size};
}

std::string sha256(std::string_view bytes) {
  Digest digest(DigestAlgorithm::Sha256);
  digest.update(bytes);
  return digest.finish();
}

std::string to_hex(std::string_view bytes) {
  static constexpr char digits[] = "0123456789abcdef";
  std::string out;
  out.reserve(bytes.size() * 2);
  for (const char byte : bytes) out += {digits[static_cast<unsigned char>(byte) >> 4], digits[byte & 15]};
  return out;
}

}  // namespace pm::base
