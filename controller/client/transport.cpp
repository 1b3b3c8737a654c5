// SPDX-License-Identifier: Apache-2.0
#include "controller/client/transport.h"

#include <httplib.h>
#include <netinet/tcp.h>

#include <atomic>
#include <thread>

#include "controller/client/tls.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;

std::string lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return text;
}

void set_options(socket_t socket) {
  const int yes = 1, unacknowledged_ms = 30'000;
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &unacknowledged_ms,
             sizeof unacknowledged_ms);  // detects a dead peer during writes
}

template <class Client>
void configure(Client& client, const Deadlines& deadlines) {
  client.set_url_encode(false);  // paths are already encoded
  client.set_tcp_nodelay(true);
  client.set_keep_alive(true);
  client.set_connection_timeout(deadlines.connect);
  client.set_read_timeout(deadlines.read);
  client.set_write_timeout(deadlines.read);
  client.set_socket_options(set_options);
}

/// The library sends the host that it connects to as SNI. When the certificate is for another name, connect by that
/// name to this address.
std::string address_of(const std::string& host) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0 || !found) return "";
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  char text[NI_MAXHOST];
  return getnameinfo(found->ai_addr, found->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0 ? text : "";
}

}  // namespace

class Connection::Impl {
 public:
  Impl(const ClusterConfig& config, Deadlines deadlines) : host_(host_and_port(config)), deadlines_(deadlines) {
    if (!config.tls) {
      client_ = std::make_unique<httplib::ClientImpl>(config.host, config.port);
      configure(*client_, deadlines);
      return;
    }
    const std::string peer = config.tls_server_name.empty() ? config.host : config.tls_server_name;
    const std::string address = peer == config.host ? "" : address_of(config.host);
    auto client = std::make_unique<httplib::SSLClient>(address.empty() ? config.host : peer, config.port);
    if (!address.empty()) client->set_hostname_addr_map({{peer, address}});
    configure(*client, deadlines);
    client->enable_server_certificate_verification(
        false);  // disables the verification of the library; configure_tls verifies inside the handshake
    configure_tls(client->ssl_context(),
                  {config.ca.read(), config.client_cert.read(), config.client_key.read(), peer, config.insecure},
                  &tls_failure_);
    client_ = std::move(client);
  }

  HttpReply exchange(const HttpRequest& wanted, std::stop_token stop,
                     const std::function<bool(std::string_view)>* receive) {
    HttpReply reply;
    const auto deadline = deadlines_.total.count() ? std::chrono::steady_clock::now() + deadlines_.total
                                                   : std::chrono::steady_clock::time_point::max();
    auto request = prepare(wanted);
    bool enough = false;
    request.response_handler = [&](const httplib::Response& head) {
      reply.status = head.status;
      for (const auto& [name, value] : head.headers) reply.headers.emplace(lower(name), value);
      return !stop.stop_requested();
    };
    request.content_receiver = [&](const char* bytes, size_t count, uint64_t, uint64_t) {
      if (stop.stop_requested() || std::chrono::steady_clock::now() > deadline) return false;
      if (receive && reply.status == 200) {
        enough = !(*receive)(std::string_view(bytes, count));
        return !enough;
      }
      if (reply.body.size() + count > deadlines_.max_body) {
        too_long_ = true;
        return false;
      }
      reply.body.append(bytes, count);
      return true;
    };
    tls_failure_.clear();
    too_long_ = false;
    const httplib::Result result = run(request, stop);
    if (!result && !enough) fail(reply, result.error(), stop, std::chrono::steady_clock::now() > deadline);
    if (result) reply.status = result->status;  // a 204 has no body, so no handler saw it
    return reply;
  }

 private:
  httplib::Request prepare(const HttpRequest& wanted) const {
    httplib::Request request;
    request.method = wanted.method;
    request.path = wanted.path;
    request.body = wanted.body;
    for (const auto& [name, value] : wanted.headers) request.set_header(name, value);
    request.set_header("Host", host_);
    if (!wanted.content_type.empty()) request.set_header("Content-Type", wanted.content_type);
    return request;
  }

  /// stop() of the library only reaches a request that is in flight, and waits while one connects: so a thread of its
  /// own repeats it until the request has ended, and whoever requests the stop of many connections waits for none of
  /// them.
  httplib::Result run(httplib::Request& request, std::stop_token stop) {
    std::atomic<bool> running{true};
    std::jthread stopper;
    std::stop_callback cancel(stop, [&] {
      stopper = std::jthread([&] {
        while (running) {
          client_->stop();
          std::this_thread::sleep_for(milliseconds(2));
        }
      });
    });
    struct Ended {
      std::atomic<bool>& flag;
      ~Ended() { flag = false; }
    } ended{running};
    if (stop.stop_requested()) return httplib::Result(nullptr, httplib::Error::Canceled);
    return client_->send(request);
  }

  void fail(HttpReply& reply, httplib::Error error, const std::stop_token& stop, bool late) const {
    reply.status = 0;
    const std::string target = " (server " + host_ + ")";
    if (stop.stop_requested()) {
      reply.failure = "stopped";
    } else if (late) {
      reply.failure = "no whole answer within " + std::to_string(deadlines_.total.count()) + " ms" + target;
    } else if (too_long_) {
      reply.failure = "the answer is longer than " + std::to_string(deadlines_.max_body) + " bytes" + target;
    } else if (!tls_failure_.empty()) {
      reply.failure = "the server's certificate is refused: " + tls_failure_ + target;
    } else {
      reply.failure = httplib::to_string(error) + target;
    }
  }

  const std::string host_;
  const Deadlines deadlines_;
  bool too_long_ = false;
  std::string tls_failure_;  // outlives client_, whose context points here
  std::unique_ptr<httplib::ClientImpl> client_;
};

Connection::Connection(const ClusterConfig& config, Deadlines deadlines)
    : impl_(std::make_unique<Impl>(config, deadlines)) {}
Connection::~Connection() = default;

HttpReply Connection::send(const HttpRequest& request, std::stop_token stop) {
  return impl_->exchange(request, stop, nullptr);
}

HttpReply Connection::stream(const HttpRequest& request, std::stop_token stop,
                             const std::function<bool(std::string_view)>& receive) {
  return impl_->exchange(request, stop, &receive);
}

class HttpServer::Impl {
 public:
  Impl(const std::string& address, int port, std::map<std::string, std::function<Answer()>> routes) {
    server_.new_task_queue = [] { return new httplib::ThreadPool(2); };  // the library takes ownership
    server_.set_payload_max_length(1024);
    server_.set_socket_options([](socket_t socket) {  // the library would share the port with others of its kind
      const int yes = 1;
      setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    server_.set_read_timeout(5);
    server_.set_write_timeout(5);
    server_.set_keep_alive_max_count(1);  // a persistent connection would occupy one of the two threads
    for (auto& [path, answer] : routes) {
      server_.Get(path, [answer = std::move(answer)](const httplib::Request&, httplib::Response& response) {
        const Answer made = answer();
        response.status = made.status;
        response.set_content(made.body, made.content_type);
      });
    }
    port_ = port ? (server_.bind_to_port(address, port) ? port : -1) : server_.bind_to_any_port(address);
    if (port_ <= 0)
      throw ConfigError("cannot listen on " + address + ":" + std::to_string(port) + ": is the port taken?");
    thread_ = std::jthread([this] { server_.listen_after_bind(); });
    server_.wait_until_ready();
  }
  ~Impl() { server_.stop(); }
  int port() const { return port_; }

 private:
  httplib::Server server_;
  int port_ = 0;
  std::jthread thread_;
};

HttpServer::HttpServer(const std::string& address, int port, std::map<std::string, std::function<Answer()>> routes)
    : impl_(std::make_unique<Impl>(address, port, std::move(routes))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return impl_->port(); }

}  // namespace pm::k8s
