// SPDX-License-Identifier: Apache-2.0
// The HTTP server on cpp-httplib. No other file of the worker serves through it; worker/hub uses it as a client.
#include "worker/server/http/http.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <future>
#include <thread>

#include "worker/base/error.h"
#include "worker/server/http/api_error.h"
#include "worker/server/http/listening_socket.h"
#include "worker/server/http/open_connections.h"
#include "worker/server/http/thread_pool.h"

#include "base/log.h"

namespace pm::server::http {
namespace {

constexpr int backlog = 512;  // httplib uses 5, with which clients of a burst wait a second for each SYN retry
constexpr size_t max_client_id_bytes = 128;  // maximum bytes of the client's own id
constexpr size_t max_discarded_bytes =
    8 << 20;  // bytes of a body that is too large, read so that the client can read the 413

/// Adapts ThreadPool to httplib, which owns the queue by a raw pointer and calls it from its accepting thread.
class PoolQueue final : public httplib::TaskQueue {
 public:
  PoolQueue(const Options& options, OpenConnections& connections)
      : pool_(options.connections, options.waiting_connections), connections_(connections) {
    connections_.set_queued([this] { return pool_.waiting(); });
  }
  bool enqueue(std::function<void()> job) override {
    if (!pool_.enqueue(std::move(job))) return false;
    connections_.make_room();
    return true;
  }
  void shutdown() override { pool_.shutdown(); }

 private:
  ThreadPool pool_;
  OpenConnections& connections_;
};

class SinkStream final : public Stream {
 public:
  SinkStream(httplib::DataSink& sink, const httplib::Request& request) : sink_(sink), request_(request) {}
  bool write(std::string_view data) override {
    return data.empty() || (sink_.is_writable() && sink_.write(data.data(), data.size()));
  }
  bool client_gone() override { return !request_.progress(0, 0); }

 private:
  httplib::DataSink& sink_;
  const httplib::Request& request_;
};

ApiError error_of_status(int status) {
  switch (status) {
    case 404:
      return ApiError(404, "not_found", "no such path");
    case 408:
      return ApiError(408, "request_timeout", "the client sent the request too slowly");
    case 413:
      return ApiError(413, "too_large", "the request's body is too large");
    case 414:
      return ApiError(
          414, "uri_too_long",
          "the request's target is longer than 8192 bytes; send the text as a body to POST /v1/completions");
    case 415:
      return ApiError(415, "unsupported_encoding",
                      "the Content-Encoding of the body is not supported; send the body without one");
    case 431:
      return ApiError(431, "header_too_large", "the request's line and headers are too long");
    case 416:
      return ApiError(416, "invalid_range", "Range requests are not supported; omit the header");
  }
  return ApiError(status, status < 500 ? "malformed_request" : "internal_error",
                  status < 500 ? "the request is not well-formed HTTP/1.1" : "the server failed");
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

/// Sanitizes an id that the client chose, because it is written to headers and logs.
std::string sanitize_id(std::string id) {
  if (id.size() > max_client_id_bytes) id.resize(max_client_id_bytes);
  for (char& c : id)
    if (!std::isalnum(static_cast<unsigned char>(c)) && std::string_view("-_.:/+=@").find(c) == std::string_view::npos)
      c = '_';
  return id;
}

Request to_request(const httplib::Request& from, std::string id) {
  Request request;
  request.id = std::move(id);
  request.method = from.method;
  const auto mark = std::min(from.target.find('?'), from.target.size());
  request.path = from.target.substr(0, mark);
  request.query = mark < from.target.size() ? from.target.substr(mark + 1) : "";
  for (const auto& [name, value] : from.headers) request.headers.emplace(lower(name), value);
  request.client_id = sanitize_id(request.header("x-request-id"));
  request.client_gone = [progress = from.progress] { return !progress(0, 0); };  // see Listener
  return request;
}

/// Returns whether a proxy and this server could disagree about where the body ends (request smuggling).
bool ambiguous_length(const httplib::Request& request) {
  const size_t lengths = request.get_header_value_count("Content-Length"),
               codings = request.get_header_value_count("Transfer-Encoding");
  return lengths + codings > 1 || (codings == 1 && lower(request.get_header_value("Transfer-Encoding")) != "chunked");
}

/// Adapts a Connection to httplib's stream interface. After `cut` is set nothing is written.
class ConnectionStream final : public httplib::Stream {
 public:
  ConnectionStream(Connection& connection, const std::atomic<bool>& cut) : connection_(connection), cut_(cut) {}
  bool is_readable() const override { return true; }
  bool is_writable() const override { return !cut_ && !connection_.peer_gone(); }
  ssize_t read(char* to, size_t size) override { return std::max<ptrdiff_t>(connection_.read(to, size), -1); }
  ssize_t write(const char* data, size_t size) override {
    return !cut_ && connection_.write(data, size) ? static_cast<ssize_t>(size) : -1;
  }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return connection_.descriptor(); }

 private:
  Connection& connection_;
  const std::atomic<bool>& cut_;
};

/// Runs httplib's server over Connection: httplib parses requests and writes replies, Connection limits the waits.
class Listener final : public httplib::Server {
 public:
  using Refuse = std::function<std::string(int status)>;
  /// `refuse` returns the complete reply to a request that httplib never sees.
  Listener(const http::Options& options, Refuse refuse) : options_(options), refuse_(std::move(refuse)) {}
  /// Ends the waits of idle connections.
  void end_waits() {
    stopping_ = true;
    connections_.end_waits();
  }
  OpenConnections& connections() { return connections_; }
  /// Ends the writing of replies.
  void cut_replies() { cut_ = true; }

 private:
  bool process_and_close_socket(socket_t fd) override {
    connections_.started();
    Connection connection(fd, options_.tls.get(), options_.limits);
    if (!connection.handshake()) return false;
    const bool was_idle = serve(connection);
    if (!stopping_ && !connection.peer_gone()) connection.finish(!was_idle);
    return true;
  }

  /// Returns true if the connection ended between requests.
  bool serve(Connection& connection) {
    for (size_t left = options_.keep_alive_requests; left > 0; --left) {
      const auto head = connections_.await_head(connection);
      if (head == Connection::Head::TooSlow || head == Connection::Head::TooLarge) {
        const std::string reply = refuse_(head == Connection::Head::TooSlow ? 408 : 431);
        connection.write(reply.data(), reply.size());
      }
      if (head != Connection::Head::Ready) return head == Connection::Head::Gone;
      ConnectionStream wire(connection, cut_);
      bool closed = false;
      // request.progress is the only member that handlers receive and httplib's server does not overwrite
      const auto setup = [&](httplib::Request& request) {
        request.progress = [&](uint64_t, uint64_t) { return !connection.peer_gone(); };
      };
      if (!process_request(wire, "", 0, "", 0, left == 1 || connection.is_ending(), closed, setup) || closed)
        return false;
    }
    return false;
  }

  const http::Options& options_;  // httplib's Server has a method Options
  const Refuse refuse_;
  std::atomic<bool> stopping_{false}, cut_{false};
  OpenConnections connections_;
};

}  // namespace

std::string Request::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

struct Server::Impl {
  Impl(Options o, std::string process, Handler h)
      : options(std::move(o)),
        id_prefix(options.id_prefix + "-" + process + "-"),
        handler(std::move(h)),
        server(options, [this](int status) { return refuse(status); }) {}

  void configure();
  std::string next_id() { return id_prefix + std::to_string(++ids); }
  void serve(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader* body);
  std::optional<ApiError> read_body(Request& request, httplib::Response& to, const httplib::ContentReader& body,
                                    bool keep) const;
  std::optional<ApiError> refusal(const httplib::Request& from, const Request& request) const;
  std::string refuse(int status);
  Response answer(const Request& request);
  Response error_response(const ApiError& error, const Request& request) const;
  void send(const httplib::Request& from, httplib::Response& to, Response response, const Request& request) const;

  const Options options;
  const std::string id_prefix;
  const Handler handler;
  Listener server;
  std::thread thread;
  std::atomic<int64_t> ids{0};
  std::atomic<bool> closing{false};
  std::promise<void> closed;  ///< set when no connection is left
  int socket = -1, port = 0;
};

void Server::Impl::configure() {
  server.new_task_queue = [this]() -> httplib::TaskQueue* { return new PoolQueue(options, server.connections()); };
  server.set_tcp_nodelay(true);
  server.set_payload_max_length(options.payload_limit);
  server.set_socket_options(
      [this](socket_t fd) {  // replaces the default SO_REUSEPORT, with which two servers share a port unnoticed
        const int on = 1;
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
        socket = fd;
      });
  // httplib finds handlers by std::regex, whose recursion grows with the path. So every request gets the same short
  // path and handler, and Router reads the target. Ranges are cleared because they would cut JSON into pieces.
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response&) {
    auto& mutable_request = const_cast<httplib::Request&>(request);  // httplib passes its own mutable object as const
    mutable_request.path = "/";
    mutable_request.ranges.clear();
    return httplib::Server::HandlerResponse::Unhandled;
  });
  const auto plain = [this](const httplib::Request& from, httplib::Response& to) { serve(from, to, nullptr); };
  const auto with_body = [this](const httplib::Request& from, httplib::Response& to,
                                const httplib::ContentReader& body) { serve(from, to, &body); };
  server.Get("/", plain)
      .Options("/", plain)
      .Post("/", with_body)
      .Put("/", with_body)
      .Patch("/", with_body)
      .Delete("/", with_body);
  server.set_error_handler([this](const httplib::Request& from, httplib::Response& to) {
    if (to.has_header("x-request-id")) return httplib::Server::HandlerResponse::Unhandled;  // a handler's own answer
    Request request;
    request.id = next_id();
    Response response = error_response(error_of_status(to.status), request);
    response.close = true;  // the start of the next request is unknown
    send(from, to, std::move(response), request);
    return httplib::Server::HandlerResponse::Handled;
  });
}

/// Reads the body. With `keep` false it is read and dropped, so that the client can read the refusal.
std::optional<ApiError> Server::Impl::read_body(Request& request, httplib::Response& to,
                                                const httplib::ContentReader& body, bool keep) const {
  size_t size = 0;
  const bool whole = body([&](const char* data, size_t n) {
    size += n;
    if (keep && size <= options.payload_limit) request.body.append(data, n);
    return size <= options.payload_limit + max_discarded_bytes;
  });
  if (size > options.payload_limit || to.status == 413)
    return ApiError(413, "too_large",
                    "the body is larger than " + std::to_string(options.payload_limit) + " bytes, which is the limit");
  if (!whole) return error_of_status(to.status > 0 ? to.status : 400);
  return std::nullopt;
}

/// Returns the error with which a request is refused before its body is read.
std::optional<ApiError> Server::Impl::refusal(const httplib::Request& from, const Request& request) const {
  if (ambiguous_length(from))
    return ApiError(400, "malformed_request",
                    "the length of the body is given twice or in an unsupported way; send one "
                    "Content-Length, or Transfer-Encoding: chunked");
  return options.gate ? options.gate(request) : std::nullopt;
}

Response Server::Impl::error_response(const ApiError& error, const Request& request) const {
  Response response;
  response.status = error.status;
  response.body = error_body(error, request.id);
  if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (options.shape_error) options.shape_error(error, request, response);
  return response;
}

/// Returns the complete reply to a request that could not be parsed.
std::string Server::Impl::refuse(int status) {
  const ApiError error = error_of_status(status);
  const std::string id = next_id(), body = error_body(error, id);
  LOG(INFO) << "id=" << id << " status=" << status << " " << error.what();
  return "HTTP/1.1 " + std::to_string(status) +
         (status == 408 ? " Request Timeout" : " Request Header Fields Too Large") +
         "\r\nConnection: close\r\nContent-Type: application/json\r\nx-request-id: " + id +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

Response Server::Impl::answer(const Request& request) {
  const auto failed = [&](const std::exception& exception) {
    const ApiError error = as_api_error(exception);
    if (error.status == 500)
      LOG(ERROR) << "id=" << request.id << " " << request.method << " failed: " << exception.what();
    return error_response(error, request);
  };
  try {
    return handler(request);
  } catch (const std::exception& exception) {
    return failed(exception);
  } catch (...) {
    return failed(std::runtime_error("an exception of no known type"));
  }
}

void Server::Impl::serve(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader* body) {
  Request request = to_request(from, next_id());
  // The library would divide the parts of a form itself, by regular expressions and without limits. Without the header
  // it hands on the body as it is, which multipart.cpp divides. The request that it refers to is not constant.
  if (from.is_multipart_form_data()) const_cast<httplib::Request&>(from).headers.erase("Content-Type");
  auto error = refusal(from, request);
  const bool framed = !ambiguous_length(from);
  const auto unread = framed && body ? read_body(request, to, *body, !error) : std::nullopt;
  if (!error) error = unread;
  Response response = error ? error_response(*error, request) : answer(request);
  // unread bytes of a body would be parsed as the next request
  response.close = response.close || error.has_value() ||
                   (!body && (from.has_header("Content-Length") || from.has_header("Transfer-Encoding")));
  send(from, to, std::move(response), request);
}

void Server::Impl::send(const httplib::Request& from, httplib::Response& to, Response response,
                        const Request& request) const {
  to.status = response.status;
  to.headers.erase("Content-Length");
  to.set_header("x-request-id", request.id);
  if (!request.client_id.empty()) to.set_header("x-client-request-id", request.client_id);
  for (const auto& [name, value] : response.headers) to.set_header(name, value);
  const bool close = response.close || closing;
  if (close) to.set_header("Connection", "close");
  if (response.stream) {
    to.set_header("Cache-Control", "no-cache");
    to.set_chunked_content_provider(
        response.content_type, [write = std::move(response.stream), &from, close](size_t, httplib::DataSink& sink) {
          SinkStream stream(sink, from);
          write(stream);
          sink.done();
          return !close;
        });
    return;
  }
  const auto text = std::make_shared<const std::string>(response.body.empty() ? "\n" : std::move(response.body));
  // A provider that reports failure after the last byte is httplib's only way to close a connection from our side.
  to.set_content_provider(text->size(), response.content_type,
                          [text, close](size_t offset, size_t length, httplib::DataSink& sink) {
                            return sink.write(text->data() + offset, length) && !close;
                          });
}

Server::Server(Options options, std::string process, Handler handler)
    : impl_(std::make_unique<Impl>(std::move(options), std::move(process), std::move(handler))) {
  impl_->configure();
}

Server::~Server() { stop(std::chrono::milliseconds(0)); }

void Server::start() {
  const auto& options = impl_->options;
  impl_->port = options.port == 0 ? impl_->server.bind_to_any_port(options.host)
                                  : (impl_->server.bind_to_port(options.host, options.port) ? options.port : -1);
  if (impl_->port <= 0)
    throw Error(Reason::PortInUse, "cannot listen on " + options.host + ":" + std::to_string(options.port) +
                                       "; another process has the port, or the address is not this host's");
  ::listen(impl_->socket, backlog);
  impl_->thread = std::thread([this] {
    impl_->server.listen_after_bind();
    impl_->closed.set_value();
  });
  impl_->server.wait_until_ready();
}

int Server::bound_port() const { return impl_->port; }

void Server::close_connections() { impl_->closing = true; }

void Server::stop(std::chrono::milliseconds linger) {
  if (!impl_->thread.joinable()) return;
  impl_->closing = true;
  finish_queued_connections(impl_->socket, linger);
  impl_->server.end_waits();
  // httplib's own stop() would drop the bodies of replies whose head is written. Without its socket it accepts nothing
  // more, finishes the connections that it has, and returns.
  ::shutdown(impl_->socket, SHUT_RDWR);
  if (impl_->closed.get_future().wait_for(linger) != std::future_status::ready) impl_->server.cut_replies();
  impl_->thread.join();
}

std::optional<std::string> get(const std::string& host, int port, const std::string& path,
                               std::chrono::milliseconds deadline, size_t max_bytes, bool tls) {
  httplib::Client client((tls ? "https://" : "http://") + host + ":" + std::to_string(port));
  client.enable_server_certificate_verification(false);
  client.set_connection_timeout(deadline);
  client.set_read_timeout(deadline);
  client.set_write_timeout(deadline);
  client.set_tcp_nodelay(true);
  const auto end = std::chrono::steady_clock::now() + deadline;
  std::string body;
  const auto result = client.Get(path, [&](const char* data, size_t n) {
    body.append(data, n);
    return body.size() <= max_bytes && std::chrono::steady_clock::now() < end;
  });
  if (!result || result->status != 200) return std::nullopt;
  return body;
}

}  // namespace pm::server::http
