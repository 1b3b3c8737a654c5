// See digest.h.
#include "worker/hub/digest.h"

#include <openssl/evp.h>

#include <stdexcept>

namespace pm::hub {

void Digest::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Digest::Digest(const File& file) : context_(EVP_MD_CTX_new()) {
  if (!context_ || EVP_DigestInit_ex(context_.get(), file.sha256.empty() ? EVP_sha1() : EVP_sha256(), nullptr) != 1) throw std::runtime_error("OpenSSL gives no digest");
  if (!file.sha256.empty()) return;
  const std::string head = "blob " + std::to_string(file.size);
  update({head.c_str(), head.size() + 1});
}

void Digest::update(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }

std::string Digest::finish() {
  unsigned char bytes[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  EVP_DigestFinal_ex(context_.get(), bytes, &size);
  std::string out;
  for (unsigned i = 0; i < size; ++i) {
    out += "0123456789abcdef"[bytes[i] >> 4];
    out += "0123456789abcdef"[bytes[i] & 15];
  }
  return out;
}

}  // namespace pm::hub
