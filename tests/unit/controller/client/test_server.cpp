// SPDX-License-Identifier: Apache-2.0
#include "test_server.h"

#include <httplib.h>
#include <openssl/pem.h>

#include <thread>

namespace pm::k8s::test {
namespace {

struct Free {
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(BIO* p) const { BIO_free(p); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

Owned<X509> certificate_of(const std::string& pem) {
  const Owned<BIO> bio(BIO_new_mem_buf(pem.data(), -1));
  return Owned<X509>(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

std::unique_ptr<httplib::Server> make(const std::optional<Identity>& identity,
                                      const std::optional<Identity>& client_authority) {
  if (!identity) return std::make_unique<httplib::Server>();
  const auto certificate = certificate_of(identity->cert);
  const Owned<BIO> bio(BIO_new_mem_buf(identity->key.data(), -1));
  const Owned<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  X509_STORE* store = nullptr;  // the server takes it over
  if (client_authority) {
    store = X509_STORE_new();
    const auto authority = certificate_of(client_authority->cert);
    X509_STORE_add_cert(store, authority.get());
  }
  return std::make_unique<httplib::SSLServer>(certificate.get(), key.get(), store);
}

std::string client_name(const SSL* ssl) {
  if (!ssl) return "";
  const Owned<X509> certificate(SSL_get1_peer_certificate(ssl));
  char name[256] = "";
  if (certificate)
    X509_NAME_get_text_by_NID(X509_get_subject_name(certificate.get()), NID_commonName, name, sizeof name);
  return name;
}

Seen seen_of(const httplib::Request& request) {
  Seen seen{request.method, request.target, request.body, {}, client_name(request.ssl), request.remote_port};
  for (const auto& [name, value] : request.headers) {
    std::string low = name;
    for (char& c : low) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    seen.headers[low] = value;
  }
  return seen;
}

}  // namespace

class TestServer::Impl {
 public:
  Impl(Handler handler, const std::optional<Identity>& identity, const std::optional<Identity>& client_authority)
      : handler_(std::move(handler)), server_(make(identity, client_authority)) {
    const auto answer = [this](const httplib::Request& request, httplib::Response& response) {
      fill(handler_(seen_of(request)), response);
    };
    server_->Get(".*", answer).Post(".*", answer).Patch(".*", answer).Delete(".*", answer).Put(".*", answer);
    port_ = server_->bind_to_any_port("127.0.0.1");
    thread_ = std::jthread([this] { server_->listen_after_bind(); });
    server_->wait_until_ready();
  }
  ~Impl() {
    stopped_ = true;
    server_->stop();
  }
  int port() const { return port_; }

 private:
  void fill(const Answer& answer, httplib::Response& response) {
    response.status = answer.status;
    for (const auto& [name, value] : answer.headers) response.set_header(name, value);
    if (answer.chunks.empty() && !answer.hold) return response.set_content(answer.body, "application/json");
    response.set_chunked_content_provider("application/json", [this, answer](size_t, httplib::DataSink& sink) {
      for (const auto& chunk : answer.chunks) {
        if (!sink.write(chunk.data(), chunk.size())) return false;
      }
      while (answer.hold && !stopped_ && sink.is_writable()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      sink.done();
      return true;
    });
  }

  Handler handler_;
  std::unique_ptr<httplib::Server> server_;
  std::atomic<bool> stopped_{false};
  int port_ = 0;
  std::jthread thread_;
};

TestServer::TestServer(Handler handler, std::optional<Identity> identity, std::optional<Identity> client_authority)
    : impl_(std::make_unique<Impl>(std::move(handler), identity, client_authority)) {}
TestServer::~TestServer() = default;
int TestServer::port() const { return impl_->port(); }

}  // namespace pm::k8s::test
