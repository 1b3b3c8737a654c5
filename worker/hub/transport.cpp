// SPDX-License-Identifier: Apache-2.0
#include "worker/hub/transport.h"

#include <arpa/inet.h>
#include <httplib.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <chrono>

namespace pm::hub {

namespace {

constexpr std::chrono::seconds connect_timeout{10}, silence{30};
constexpr size_t max_servers = 8;  // signed links may lead to any host

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

bool is_address(const std::string& host) {
  in6_addr bytes;
  return inet_pton(AF_INET, host.c_str(), &bytes) == 1 || inet_pton(AF_INET6, host.c_str(), &bytes) == 1;
}

int note_failure(int accepted, X509_STORE_CTX* chain) {
  if (accepted) return 1;
  const auto* ssl = static_cast<SSL*>(X509_STORE_CTX_get_ex_data(chain, SSL_get_ex_data_X509_STORE_CTX_idx()));
  if (auto* failure = static_cast<std::string*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl))))
    *failure = X509_verify_cert_error_string(X509_STORE_CTX_get_error(chain));
  return 0;
}

/// Verifies certificates inside the handshake, because the library's own check differs between versions.
void verify_peer(SSL_CTX* context, const std::string& host, std::string* failure) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  SSL_CTX_set_app_data(context, failure);
  SSL_CTX_set_default_verify_paths(context);
  X509_VERIFY_PARAM* parameters = SSL_CTX_get0_param(context);
  X509_VERIFY_PARAM_set_hostflags(parameters,
                                  X509_CHECK_FLAG_NEVER_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (is_address(host))
    X509_VERIFY_PARAM_set1_ip_asc(parameters, host.c_str());
  else
    X509_VERIFY_PARAM_set1_host(parameters, host.c_str(), host.size());
  SSL_CTX_set_verify(context, SSL_VERIFY_PEER, note_failure);
}

}  // namespace

std::string Reply::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

class Transport::Server {
 public:
  Server(const Url& url, const std::optional<Proxy>& proxy) {
    if (url.tls) {
      auto client = std::make_unique<httplib::SSLClient>(url.host, url.port);
      client->enable_server_certificate_verification(false);  // the context verifies instead
      verify_peer(client->ssl_context(), url.host, &tls_failure);
      this->client = std::move(client);
    } else {
      client = std::make_unique<httplib::ClientImpl>(url.host, url.port);
    }
    client->set_url_encode(false);
    client->set_follow_location(false);
    client->set_keep_alive(true);
    client->set_tcp_nodelay(true);
    client->set_connection_timeout(connect_timeout);
    client->set_read_timeout(silence);
    client->set_write_timeout(silence);
    if (!proxy) return;
    client->set_proxy(proxy->host, proxy->port);
    if (!proxy->user.empty()) client->set_proxy_basic_auth(proxy->user, proxy->password);
  }
  std::string tls_failure;  // the client's context points to it
  std::unique_ptr<httplib::ClientImpl> client;
};

Transport::Transport(Environment environment) : environment_(std::move(environment)) {}
Transport::~Transport() = default;

Reply Transport::get(const Url& url, const std::map<std::string, std::string>& headers,
                     const std::function<bool(const Reply&)>& wanted,
                     const std::function<bool(std::string_view)>& take) {
  if (servers_.size() > max_servers) servers_.clear();
  auto& server = servers_[url.origin()];
  if (!server) server = std::make_unique<Server>(url, proxy_for(url, environment_));
  httplib::Request request;
  request.method = "GET";
  request.path = url.target;
  for (const auto& [name, value] : headers) request.set_header(name, value);
  request.set_header("User-Agent", "parallelmodel/" PM_VERSION);
  request.set_header("Accept-Encoding", "identity");  // sizes and ranges are those of the file
  Reply reply;
  request.response_handler = [&](const httplib::Response& head) {
    reply.status = head.status;
    for (const auto& [name, value] : head.headers) reply.headers.emplace(lower(name), value);
    reply.ended_early = !wanted(reply);
    return !reply.ended_early;
  };
  request.content_receiver = [&](const char* bytes, size_t count, uint64_t, uint64_t) {
    reply.ended_early = !take(std::string_view(bytes, count));
    return !reply.ended_early;
  };
  server->tls_failure.clear();
  const httplib::Result result = server->client->send(request);
  if (!result && !reply.ended_early) {
    reply.failure = server->tls_failure.empty() ? httplib::to_string(result.error())
                                                : "the server's certificate is refused: " + server->tls_failure;
  }
  if (!result) servers_.erase(url.origin());  // the rest of a body would be read as the next reply
  return reply;
}

}  // namespace pm::hub
