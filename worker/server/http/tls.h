// SPDX-License-Identifier: Apache-2.0
// TLS 1.2 and 1.3 for the API port, with certificate files that can be replaced while the server runs.
#pragma once
#include <openssl/ssl.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

namespace pm::server {

struct SslFree {
  void operator()(SSL* ssl) const { SSL_free(ssl); }
};
struct SslContextFree {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};

/// A TLS context of certificate files. Open connections keep their certificate. Thread-safe.
class Tls {
 public:
  /// Loads PEM files. `certificate` contains the chain, starting with the server's own certificate. Throws
  /// Error{CertificateUnreadable} that names the file.
  Tls(std::filesystem::path certificate, std::filesystem::path key);
  /// Returns the server side of a new connection over `fd`. Checks at most once a second whether the files have
  /// changed; changed files that are invalid, or do not match yet, are ignored until they are usable.
  std::unique_ptr<SSL, SslFree> accept(int fd);

 private:
  using Context = std::unique_ptr<SSL_CTX, SslContextFree>;
  Context load() const;
  void refresh();
  std::string stamp() const;

  const std::filesystem::path certificate_, key_;
  std::mutex mutex_;
  Context context_;
  std::string stamp_, last_error_;  ///< state of the loaded files; why newer ones are unusable
  std::chrono::steady_clock::time_point last_check_;
};

}  // namespace pm::server
