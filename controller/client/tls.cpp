// SPDX-License-Identifier: Apache-2.0
#include "controller/client/tls.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "controller/client/cluster_config.h"

namespace pm::k8s {
namespace {

struct Free {
  void operator()(BIO* p) const { BIO_free(p); }
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(X509_STORE* p) const { X509_STORE_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

Owned<BIO> bio_of(const std::string& pem) {
  return Owned<BIO>(BIO_new_mem_buf(pem.data(), static_cast<int>(pem.size())));
}

std::string openssl_error() {
  char text[256] = "unknown";
  if (const unsigned long code = ERR_get_error()) ERR_error_string_n(code, text, sizeof text);
  ERR_clear_error();
  return text;
}

bool is_address(const std::string& host) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(AF_INET, host.c_str(), bytes) == 1 || inet_pton(AF_INET6, host.c_str(), bytes) == 1;
}

/// Creates a private store, so that no certificate of the system is trusted in addition. Every given certificate is a
/// trust anchor, as in Go.
void trust(SSL_CTX* context, const std::string& pem) {
  Owned<X509_STORE> store(X509_STORE_new());
  const auto bio = bio_of(pem);
  int count = 0;
  while (Owned<X509> certificate{PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)}) {
    X509_STORE_add_cert(store.get(), certificate.get());
    ++count;
  }
  ERR_clear_error();  // the end of the PEM is an error to OpenSSL
  if (!count) throw ConfigError("certificate-authority holds no PEM certificate");
  X509_STORE_set_flags(store.get(), X509_V_FLAG_PARTIAL_CHAIN);
  SSL_CTX_set_cert_store(context, store.release());
}

void present(SSL_CTX* context, const std::string& cert, const std::string& key) {
  const auto cert_bio = bio_of(cert), key_bio = bio_of(key);
  const Owned<X509> leaf(PEM_read_bio_X509(cert_bio.get(), nullptr, nullptr, nullptr));
  if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1)
    throw ConfigError("client-certificate cannot be used: " + openssl_error());
  while (Owned<X509> next{PEM_read_bio_X509(cert_bio.get(), nullptr, nullptr, nullptr)})
    SSL_CTX_add1_chain_cert(context, next.get());
  ERR_clear_error();
  const Owned<EVP_PKEY> private_key(PEM_read_bio_PrivateKey(key_bio.get(), nullptr, nullptr, nullptr));
  if (!private_key || SSL_CTX_use_PrivateKey(context, private_key.get()) != 1)
    throw ConfigError("client-key cannot be used: " + openssl_error());
  if (SSL_CTX_check_private_key(context) != 1) throw ConfigError("client-key does not belong to client-certificate");
}

void expect_peer(SSL_CTX* context, const std::string& peer) {
  X509_VERIFY_PARAM* parameters = SSL_CTX_get0_param(context);
  X509_VERIFY_PARAM_set_hostflags(parameters,
                                  X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  const int done = is_address(peer) ? X509_VERIFY_PARAM_set1_ip_asc(parameters, peer.c_str())
                                    : X509_VERIFY_PARAM_set1_host(parameters, peer.c_str(), peer.size());
  if (peer.empty() || done != 1)
    throw ConfigError("\"" + peer + "\" is no name or address that a certificate can hold");
}

int note_failure(int accepted, X509_STORE_CTX* chain) {
  if (accepted) return 1;
  const auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
  auto* failure = static_cast<std::string*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
  if (failure) *failure = X509_verify_cert_error_string(X509_STORE_CTX_get_error(chain));
  return 0;
}

}  // namespace

void configure_tls(SSL_CTX* context, const TlsOptions& options, std::string* failure) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_app_data(context, failure);
  SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);  // frees 34 KB of an idle connection
  // Close without the exchange of close_notify: the library would wait up to a second for a silent peer at each of our
  // connections. HTTP says itself where a message ends.
  SSL_CTX_set_quiet_shutdown(context, 1);
  if (!options.cert.empty()) present(context, options.cert, options.key);
  if (options.insecure) {
    SSL_CTX_set_verify(context, SSL_VERIFY_NONE, nullptr);
    return;
  }
  if (options.ca.empty()) {
    SSL_CTX_set_default_verify_paths(context);
  } else {
    trust(context, options.ca);
  }
  expect_peer(context, options.peer);
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, note_failure);
}

}  // namespace pm::k8s
