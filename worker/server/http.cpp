// See http.h. The only file of the worker that includes cpp-httplib.
#include "worker/server/http.h"

#include <httplib.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <thread>

#include "worker/base/error.h"
#include "worker/server/api_error.h"
#include "worker/server/open_count.h"
#include "worker/server/thread_pool.h"
#include "worker/base/log.h"

namespace pm::server::http {
namespace {

constexpr int kBacklog = 512;                  // httplib asks for 5, and a burst of clients would wait a second for each retry
constexpr size_t kDiscarded = 8 << 20;         // of a body that is too large, read on so that the client gets to read our 413

/// httplib owns its queue by raw pointer and calls it from its accepting thread.
class PoolQueue final : public httplib::TaskQueue {
 public:
  explicit PoolQueue(const Options& options) : pool_(options.connections, options.waiting_connections) {}
  bool enqueue(std::function<void()> job) override { return pool_.enqueue(std::move(job)); }
  void shutdown() override { pool_.shutdown(); }

 private:
  ThreadPool pool_;
};

class SinkStream final : public Stream {
 public:
  SinkStream(httplib::DataSink& sink, const httplib::Request& request) : sink_(sink), request_(request) {}
  bool write(std::string_view data) override { return data.empty() || (sink_.is_writable() && sink_.write(data.data(), data.size())); }
  bool client_gone() override { return request_.is_connection_closed(); }

 private:
  httplib::DataSink& sink_;
  const httplib::Request& request_;
};

ApiError error_of_status(int status) {
  switch (status) {
    case 404: return ApiError(404, "not_found", "no such path");
    case 413: return ApiError(413, "too_large", "the request's body is too large");
    case 414: return ApiError(414, "uri_too_long", "the request's target is longer than 8192 bytes; send the text as a body to POST /v1/completions");
    case 415: return ApiError(415, "unsupported_encoding", "the body's Content-Encoding is not served; send it plain");
    case 416: return ApiError(416, "invalid_range", "Range is not served; leave the header out");
  }
  return ApiError(status, status < 500 ? "malformed_request" : "internal_error",
                  status < 500 ? "the request is not well-formed HTTP/1.1" : "the server failed");
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

Request to_request(const httplib::Request& from, std::string id) {
  Request request;
  request.id = std::move(id);
  request.method = from.method;
  const auto mark = std::min(from.target.find('?'), from.target.size());
  request.path = from.target.substr(0, mark);
  request.query = mark < from.target.size() ? from.target.substr(mark + 1) : "";
  for (const auto& [name, value] : from.headers) request.headers.emplace(lower(name), value);
  request.client_gone = from.is_connection_closed;
  return request;
}

}  // namespace

std::string Request::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

struct Server::Impl {
  Impl(Options o, std::string process, Handler h)
      : options(std::move(o)), id_prefix(options.id_prefix + "-" + process + "-"), handler(std::move(h)) {}

  void configure();
  std::string next_id() { return id_prefix + std::to_string(++ids); }
  void serve(const httplib::Request& from, httplib::Response& to, const httplib::ContentReader* body);
  std::optional<ApiError> read_body(Request& request, httplib::Response& to, const httplib::ContentReader& body) const;
  Response answer(const Request& request);
  void send(const httplib::Request& from, httplib::Response& to, Response response, const std::string& id, std::shared_ptr<void> open) const;

  const Options options;
  const std::string id_prefix;
  const Handler handler;
  httplib::Server server;
  std::thread thread;
  std::atomic<int64_t> ids{0};
  std::atomic<bool> closing{false};
  OpenCount open;   ///< replies, from the handler's start to the last byte on the wire
  int socket = -1, port = 0;
};

void Server::Impl::configure() {
  server.new_task_queue = [this]() -> httplib::TaskQueue* { return new PoolQueue(options); };
  server.set_tcp_nodelay(true);
  server.set_read_timeout(options.read_timeout);
  server.set_write_timeout(options.write_timeout);
  server.set_keep_alive_timeout(options.keep_alive.count());
  server.set_keep_alive_max_count(options.keep_alive_requests);
  server.set_payload_max_length(options.payload_limit);
  server.set_socket_options([this](socket_t fd) {   // instead of the default SO_REUSEPORT, by which two servers share a port unnoticed
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    socket = fd;
  });
  // httplib finds handlers by std::regex, whose recursion grows with the path. So every request gets the same short path and method
  // handler, and our router reads the target. Ranges would cut JSON into pieces.
  server.set_pre_routing_handler([](const httplib::Request& request, httplib::Response&) {
    auto& ours = const_cast<httplib::Request&>(request);   // httplib's own object, not const, given to handlers as const
    ours.path = "/";
    ours.ranges.clear();
    return httplib::Server::HandlerResponse::Unhandled;
  });
  const auto plain = [this](const httplib::Request& from, httplib::Response& to) { serve(from, to, nullptr); };
  const auto with_body = [this](const httplib::Request& from, httplib::Response& to, const httplib::ContentReader& body) { serve(from, to, &body); };
  server.Get("/", plain).Options("/", plain).Post("/", with_body).Put("/", with_body).Patch("/", with_body).Delete("/", with_body);
  server.set_error_handler([this](const httplib::Request& from, httplib::Response& to) {
    if (to.has_header("x-request-id")) return httplib::Server::HandlerResponse::Unhandled;   // a handler's own answer
    const auto id = next_id();
    Response response;
    response.status = to.status;
    response.body = error_body(error_of_status(to.status), id);
    response.close = true;   // where the next request starts is not known
    send(from, to, std::move(response), id, open.enter());
    return httplib::Server::HandlerResponse::Handled;
  });
}

std::optional<ApiError> Server::Impl::read_body(Request& request, httplib::Response& to, const httplib::ContentReader& body) const {
  size_t size = 0;
  const bool whole = body([&](const char* data, size_t n) {
    size += n;
    if (size <= options.payload_limit) request.body.append(data, n);
    return size <= options.payload_limit + kDiscarded;
  });
  if (size > options.payload_limit || to.status == 413)
    return ApiError(413, "too_large", "the body is larger than " + std::to_string(options.payload_limit) + " bytes, which is the limit");
  if (!whole) return error_of_status(to.status > 0 ? to.status : 400);
  return std::nullopt;
}

Response Server::Impl::answer(const Request& request) {
  const auto failed = [&](const std::exception& exception) {
    const ApiError error = as_api_error(exception);
    if (error.status == 500) LOG(ERROR) << "id=" << request.id << " " << request.method << " failed: " << exception.what();
    Response response;
    response.status = error.status;
    response.body = error_body(error, request.id);
    if (error.retry_after > 0) response.headers.emplace_back("Retry-After", std::to_string(error.retry_after));
    return response;
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
  auto guard = open.enter();
  Request request = to_request(from, next_id());
  Response response;
  if (const auto error = body ? read_body(request, to, *body) : std::nullopt) {
    response.status = error->status;
    response.body = error_body(*error, request.id);
    response.close = true;   // the rest of the body would be taken for the next request
  } else {
    response = answer(request);
  }
  send(from, to, std::move(response), request.id, std::move(guard));
}

void Server::Impl::send(const httplib::Request& from, httplib::Response& to, Response response, const std::string& id, std::shared_ptr<void> guard) const {
  to.status = response.status;
  to.headers.erase("Content-Length");
  to.set_header("x-request-id", id);
  for (const auto& [name, value] : response.headers) to.set_header(name, value);
  const bool close = response.close || closing;
  if (close) to.set_header("Connection", "close");
  if (response.stream) {
    to.set_header("Cache-Control", "no-cache");
    to.set_chunked_content_provider(response.content_type, [write = std::move(response.stream), &from, close, guard](size_t, httplib::DataSink& sink) {
      SinkStream stream(sink, from);
      write(stream);
      sink.done();
      return !close;
    });
    return;
  }
  const auto text = std::make_shared<const std::string>(response.body.empty() ? "\n" : std::move(response.body));
  // A provider that reports failure after the last byte is httplib's only way to close a connection from our side.
  to.set_content_provider(text->size(), response.content_type, [text, close, guard](size_t offset, size_t length, httplib::DataSink& sink) {
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
    throw Error(ErrorKind::Usage, "PortInUse",
                "cannot listen on " + options.host + ":" + std::to_string(options.port) + "; another process has the port, or the address is not this host's");
  ::listen(impl_->socket, kBacklog);
  impl_->thread = std::thread([this] { impl_->server.listen_after_bind(); });
  impl_->server.wait_until_ready();
}

int Server::bound_port() const { return impl_->port; }

void Server::close_connections() { impl_->closing = true; }

void Server::stop(std::chrono::milliseconds linger) {
  if (!impl_->thread.joinable()) return;
  impl_->closing = true;
  impl_->open.wait_until_none(linger);
  impl_->server.stop();
  impl_->thread.join();
}

std::optional<std::string> get(const std::string& host, int port, const std::string& path, std::chrono::milliseconds deadline, size_t max_bytes) {
  httplib::Client client(host, port);
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
