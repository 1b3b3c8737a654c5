// SPDX-License-Identifier: Apache-2.0
// An HTTP server with limits and a small client. The types hide cpp-httplib, which only http.cpp includes.
#pragma once
#include <chrono>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/server/http/api_error.h"
#include "worker/server/http/connection.h"

namespace pm::server::http {

struct Request {
  std::string id;         ///< the server's id, unique in this process, returned in x-request-id
  std::string client_id;  ///< the client's x-request-id, sanitized, returned in x-client-request-id
  std::string method;
  std::string path;                            ///< as sent: percent-encoded, without the query
  std::string query;                           ///< as sent, without '?'
  std::map<std::string, std::string> headers;  ///< lower-case names; the first value of a repeated header
  std::string body;                            ///< at most the payload limit
  std::function<bool()> client_gone;  ///< asks the socket; cheap enough for ten times a second. A client that has
                                      ///< closed its sending side is gone
  /// Returns the value of a header, or "" if it is absent. `name` is in lower case.
  std::string header(const std::string& name) const;
};

/// The sending end of a streamed reply.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Sends `data` immediately. Returns false if the client has disconnected.
  virtual bool write(std::string_view data) = 0;
  virtual bool client_gone() = 0;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool close = false;  ///< sends "Connection: close" and closes the connection
  /// If set, it is called once after the headers, writes the body in chunks and returns at its end. It must not throw.
  std::function<void(Stream&)> stream;
};

/// A handler is called on one of the server's threads. An exception becomes a JSON error: ApiError and pm::Error by
/// their kinds, others 500.
using Handler = std::function<Response(const Request&)>;

struct Options {
  std::string host = "0.0.0.0";
  int port = 0;                         ///< 0: any free port
  size_t payload_limit = 1 << 20;       ///< maximum bytes of a request body; a larger one is refused with 413
  size_t connections = 512;             ///< served concurrently, each by a thread that is created on demand
  size_t waiting_connections = 256;     ///< accepted beyond that and queued; further ones are closed
  ConnectionLimits limits;              ///< limits of one connection
  size_t keep_alive_requests = 10'000;  ///< maximum requests on one connection
  std::string id_prefix = "req";        ///< prefix of request ids: PREFIX-PROCESS-COUNT
  std::shared_ptr<Tls> tls;             ///< absent: plain HTTP
  /// Called before a request body is read; a returned error refuses the request. Called on any thread of the server.
  std::function<std::optional<ApiError>(const Request&)> gate;
  /// Changes the reply with an error, where a path has another form of errors. Called on any thread of the server.
  std::function<void(const ApiError&, const Request&, Response&)> shape_error;
};

/// An HTTP/1.1 server with optional TLS. It sets TCP_NODELAY, does not share its port, adds an id to every reply, and
/// returns errors as OpenAI error objects, also for malformed requests.
class Server {
 public:
  /// `process` is a short word that makes request ids unique among processes.
  Server(Options, std::string process, Handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  /// Binds and serves in the background. Throws Error{PortInUse}.
  void start();
  int bound_port() const;
  /// Makes every further reply close its connection.
  void close_connections();
  /// Takes no new connection, accepts those that are established, answers what they have sent, and waits up to `linger`
  /// until all connections have ended. Then cuts the replies that are left and joins the threads. Idempotent.
  void stop(std::chrono::milliseconds linger = std::chrono::milliseconds(2000));

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Returns the body of GET http://host:port/path if the reply is 200 within `deadline` and `max_bytes`. With `tls` it
/// uses https without verifying the certificate, which suits other processes of the same pod.
std::optional<std::string> get(const std::string& host, int port, const std::string& path,
                               std::chrono::milliseconds deadline, size_t max_bytes, bool tls = false);

}  // namespace pm::server::http
