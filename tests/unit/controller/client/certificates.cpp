// SPDX-License-Identifier: Apache-2.0
#include "certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <stdexcept>

namespace pm::k8s::test {
namespace {

struct Free {
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(BIO* p) const { BIO_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

std::string text_of(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  return std::string(bytes, static_cast<size_t>(size));
}

std::string pem(X509* certificate) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509(bio.get(), certificate);
  return text_of(bio.get());
}

std::string pem(EVP_PKEY* key) {
  const Owned<BIO> bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
  return text_of(bio.get());
}

void extend(X509* certificate, X509* issuer, int nid, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, nid, value.c_str());
  if (!extension) throw std::logic_error("extension " + value);
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

Owned<X509> blank(const std::string& name, EVP_PKEY* key, bool expired) {
  static std::atomic<int> serial{1};
  Owned<X509> certificate(X509_new());
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), serial++);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -7200);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), expired ? -3600 : 3600);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_pubkey(certificate.get(), key);
  return certificate;
}

}  // namespace

Identity make_authority(const std::string& name) {
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const auto certificate = blank(name, key.get(), false);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign");
  X509_sign(certificate.get(), key.get(), EVP_sha256());
  return {pem(certificate.get()), pem(key.get())};
}

Identity issue(const Identity& authority, const std::string& name, const std::vector<std::string>& alternatives,
               bool expired) {
  const Owned<BIO> cert_bio(BIO_new_mem_buf(authority.cert.data(), -1)),
      key_bio(BIO_new_mem_buf(authority.key.data(), -1));
  const Owned<X509> issuer(PEM_read_bio_X509(cert_bio.get(), nullptr, nullptr, nullptr));
  const Owned<EVP_PKEY> issuer_key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr));
  const Owned<EVP_PKEY> key(EVP_EC_gen("P-256"));
  const auto certificate = blank(name, key.get(), expired);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(issuer.get()));
  std::string list;
  for (const auto& alternative : alternatives) list.append(list.empty() ? "" : ",").append(alternative);
  if (!list.empty()) extend(certificate.get(), issuer.get(), NID_subject_alt_name, list);
  X509_sign(certificate.get(), issuer_key.get(), EVP_sha256());
  return {pem(certificate.get()), pem(key.get())};
}

}  // namespace pm::k8s::test
