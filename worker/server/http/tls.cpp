// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/tls.h"

#include <openssl/err.h>
#include <sys/stat.h>

#include "worker/base/error.h"

#include "base/log.h"

namespace pm::server {
namespace {

constexpr std::chrono::seconds check_interval{1};

std::string last_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason ? reason : "unknown error";
}

int no_password(char*, int, int, void*) { return 0; }  // without this callback OpenSSL would prompt on the terminal

int choose_http1(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in,
                 unsigned in_length, void*) {
  static const unsigned char http1_protocol[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, http1_protocol, sizeof http1_protocol - 1, in, in_length) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Tls::Tls(std::filesystem::path certificate, std::filesystem::path key)
    : certificate_(std::move(certificate)),
      key_(std::move(key)),
      context_(load()),
      stamp_(stamp()),
      last_check_(std::chrono::steady_clock::now()) {}

Tls::Context Tls::load() const {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()));
  const auto refuse = [](const std::string& what) {
    return Error(Reason::CertificateUnreadable, what + ": " + last_error());
  };
  if (!context) throw refuse("OpenSSL cannot create a context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(),
                   SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_http1, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_.c_str()) != 1)
    throw refuse("the certificate " + certificate_.string() +
                 " cannot be used; expected a PEM chain that starts with the server's certificate");
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_.c_str(), SSL_FILETYPE_PEM) != 1)
    throw refuse("the key " + key_.string() +
                 " cannot be used; expected the PEM private key of the certificate, without a password");
  if (SSL_CTX_check_private_key(context.get()) != 1)
    throw refuse("the key " + key_.string() + " is not that of the certificate " + certificate_.string());
  return context;
}

std::string Tls::stamp() const {
  std::string all;
  for (const auto* file : {&certificate_, &key_}) {
    struct stat found{};
    if (stat(file->c_str(), &found) == 0)
      all += std::to_string(found.st_ino) + ":" + std::to_string(found.st_size) + ":" +
             std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec) + " ";
  }
  return all;
}

void Tls::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (now - last_check_ < check_interval) return;
  last_check_ = now;
  const std::string found = stamp();
  if (found == stamp_) return;
  try {
    context_ = load();
    stamp_ = found;
    last_error_.clear();
    LOG(INFO) << "reloaded the changed certificate for new connections";
  } catch (const Error& error) {
    if (last_error_ != error.what())
      LOG(WARNING) << "cannot load the changed certificate; the loaded one stays in use: " << error.what();
    last_error_ = error.what();
  }
}

std::unique_ptr<SSL, SslFree> Tls::accept(int fd) {
  std::lock_guard lock(mutex_);
  refresh();
  std::unique_ptr<SSL, SslFree> ssl(SSL_new(context_.get()));  // counts a use of the context
  if (ssl && SSL_set_fd(ssl.get(), fd) != 1) ssl.reset();
  if (ssl) SSL_set_accept_state(ssl.get());
  return ssl;
}

}  // namespace pm::server
