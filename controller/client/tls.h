// SPDX-License-Identifier: Apache-2.0
// Verifies the certificates of API servers with OpenSSL inside the handshake.
#pragma once
#include <memory>
#include <string>

struct ssl_ctx_st;

namespace pm::k8s {

struct TlsOptions {
  std::string ca;         ///< PEM, one or more certificates, exclusively trusted; empty: the system's authorities
  std::string cert, key;  ///< PEM of the client, chain after the leaf; both or none
  std::string peer;       ///< name or address that the server's certificate must hold as subjectAltName
  bool insecure = false;
};

/// Sets up a client context: TLS >= 1.2, the peer verified against `ca` only, its name by subjectAltName only (never by
/// CN), our certificate. The checks of HTTP libraries differ between versions; these do not. `failure`
/// receives the reason when a later handshake refuses the peer; it must
/// outlive the context. Throws ConfigError.
void configure_tls(ssl_ctx_st* context, const TlsOptions&, std::string* failure);

}  // namespace pm::k8s
