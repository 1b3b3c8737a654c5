// See tls.h.
#include "worker/server/tls.h"

#include <openssl/err.h>
#include <sys/stat.h>

#include "worker/base/error.h"
#include "worker/base/log.h"

namespace pm::server {
namespace {

constexpr std::chrono::seconds kLook{1};

std::string last_error() {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return reason ? reason : "unknown error";
}

int no_password(char*, int, int, void*) { return 0; }   // else OpenSSL would ask on the terminal

int choose_http1(SSL*, const unsigned char** out, unsigned char* out_length, const unsigned char* in, unsigned in_length, void*) {
  static const unsigned char kHttp1[] = "\x08http/1.1";
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, kHttp1, sizeof kHttp1 - 1, in, in_length) != OPENSSL_NPN_NEGOTIATED) return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Tls::Tls(std::filesystem::path certificate, std::filesystem::path key)
    : certificate_(std::move(certificate)), key_(std::move(key)), context_(load()), stamp_(stamp()), looked_(std::chrono::steady_clock::now()) {}

Tls::Context Tls::load() const {
  ERR_clear_error();
  Context context(SSL_CTX_new(TLS_server_method()));
  const auto refuse = [](const std::string& what) { return Error(ErrorKind::Usage, "CertificateUnreadable", what + ": " + last_error()); };
  if (!context) throw refuse("OpenSSL gives no context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_IGNORE_UNEXPECTED_EOF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(context.get(), no_password);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_http1, nullptr);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate_.c_str()) != 1) throw refuse("the certificate " + certificate_.string() + " cannot be used; PEM is needed, the server's own first");
  if (SSL_CTX_use_PrivateKey_file(context.get(), key_.c_str(), SSL_FILETYPE_PEM) != 1) throw refuse("the key " + key_.string() + " cannot be used; the PEM key of the certificate is needed, without a password");
  if (SSL_CTX_check_private_key(context.get()) != 1) throw refuse("the key " + key_.string() + " is not that of the certificate " + certificate_.string());
  return context;
}

std::string Tls::stamp() const {
  std::string all;
  for (const auto* file : {&certificate_, &key_}) {
    struct stat found{};
    if (stat(file->c_str(), &found) == 0)
      all += std::to_string(found.st_ino) + ":" + std::to_string(found.st_size) + ":" + std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec) + " ";
  }
  return all;
}

void Tls::refresh() {
  const auto now = std::chrono::steady_clock::now();
  if (now - looked_ < kLook) return;
  looked_ = now;
  const std::string found = stamp();
  if (found == stamp_) return;
  try {
    context_ = load();
    stamp_ = found;
    complaint_.clear();
    LOG(INFO) << "the certificate has changed; new connections get the new one";
  } catch (const Error& error) {
    if (complaint_ != error.what()) LOG(WARNING) << "the old certificate stays in use: " << error.what();
    complaint_ = error.what();
  }
}

std::unique_ptr<SSL, SslFree> Tls::accept(int fd) {
  std::lock_guard lock(mutex_);
  refresh();
  std::unique_ptr<SSL, SslFree> ssl(SSL_new(context_.get()));   // counts a use of the context
  if (ssl && SSL_set_fd(ssl.get(), fd) != 1) ssl.reset();
  if (ssl) SSL_set_accept_state(ssl.get());
  return ssl;
}

}  // namespace pm::server
