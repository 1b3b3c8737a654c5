// The certificate of the API port: TLS 1.2 and 1.3, files that may be exchanged while the server runs.
#pragma once
#include <openssl/ssl.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

namespace pm::server {

struct SslFree { void operator()(SSL* ssl) const { SSL_free(ssl); } };
struct SslContextFree { void operator()(SSL_CTX* context) const { SSL_CTX_free(context); } };

/// Thread-safe. Connections keep the certificate that they began with.
class Tls {
 public:
  /// PEM files; `certificate` holds the chain, the server's own first. Throws Error{Usage, "CertificateUnreadable"} that names the file.
  Tls(std::filesystem::path certificate, std::filesystem::path key);
  /// The server's end for a new connection over `fd`. Looks at most once a second whether the files have changed; new ones that cannot be
  /// used, or do not belong together yet, leave the old ones in place until they can.
  std::unique_ptr<SSL, SslFree> accept(int fd);

 private:
  using Context = std::unique_ptr<SSL_CTX, SslContextFree>;
  Context load() const;
  void refresh();
  std::string stamp() const;

  const std::filesystem::path certificate_, key_;
  std::mutex mutex_;
  Context context_;
  std::string stamp_, complaint_;   ///< of the files in use; why newer ones are not
  std::chrono::steady_clock::time_point looked_;
};

}  // namespace pm::server
