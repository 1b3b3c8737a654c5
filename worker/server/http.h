// The HTTP of this process: a server with guards and a tiny client, behind types of our own. http.cpp is the one file that knows cpp-httplib.
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

#include "worker/server/api_error.h"
#include "worker/server/connection.h"

namespace pm::server::http {

struct Request {
  std::string id;                                ///< ours, unique in this process; the reply carries it as x-request-id
  std::string client_id;                         ///< the client's x-request-id, made harmless: the reply carries it as x-client-request-id
  std::string method;
  std::string path;                              ///< as sent: percent-encoded, without the query
  std::string query;                             ///< as sent, without '?'
  std::map<std::string, std::string> headers;    ///< lower-case names; of repeated ones the first
  std::string body;                              ///< at most the payload limit
  std::function<bool()> client_gone;             ///< asks the socket; cheap enough for ten times a second. A client that has closed its sending side is gone
  /// A header's value, "" when absent. `name` in lower case.
  std::string header(const std::string& name) const;
};

/// The sending end of a streamed reply.
class Stream {
 public:
  virtual ~Stream() = default;
  /// Sends `data` at once; false when the client is gone.
  virtual bool write(std::string_view data) = 0;
  virtual bool client_gone() = 0;
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool close = false;                            ///< "Connection: close", and the server does close
  /// When set, called once after the headers; writes the body piece by piece and returns at its end. Must not throw.
  std::function<void(Stream&)> stream;
};

/// Called on one of the server's threads. What it throws becomes a JSON error, a 500 if it is no ApiError or pm::Error.
using Handler = std::function<Response(const Request&)>;

struct Options {
  std::string host = "0.0.0.0";
  int port = 0;                                  ///< 0: any free one
  size_t payload_limit = 1 << 20;                ///< bytes of a request's body; more is 413
  size_t connections = 512;                      ///< served at once, one thread each; threads are made when needed
  size_t waiting_connections = 256;              ///< accepted beyond that and kept waiting; more are closed
  ConnectionLimits limits;                       ///< times and sizes of one connection
  size_t keep_alive_requests = 10'000;           ///< on one connection
  std::string id_prefix = "req";                 ///< of request ids: prefix-process-count
  std::shared_ptr<Tls> tls;                      ///< absent: plain HTTP
  /// Asked before a request's body is read: an error that it is refused with. From any of the server's threads.
  std::function<std::optional<ApiError>(const Request&)> gate;
};

/// HTTP/1.1 server, with TLS or without. TCP_NODELAY, no port sharing, ids for every reply, errors as OpenAI objects, also those of malformed requests.
class Server {
 public:
  /// `process` distinguishes this process's ids from others': any short word.
  Server(Options, std::string process, Handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;
  /// Binds and serves in the background. Throws Error{Usage, "PortInUse"}.
  void start();
  int bound_port() const;
  /// From now on every reply closes its connection.
  void close_connections();
  /// Waits up to `linger` for replies in progress, then closes everything and joins. Idempotent.
  void stop(std::chrono::milliseconds linger = std::chrono::milliseconds(2000));

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Body of GET http://host:port/path if it answers 200 within `deadline` in at most `max_bytes`. `tls`: https, the certificate unchecked, for
/// other processes of this pod.
std::optional<std::string> get(const std::string& host, int port, const std::string& path, std::chrono::milliseconds deadline, size_t max_bytes,
                               bool tls = false);

}  // namespace pm::server::http
