// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 over one connection, and a small server. Only this file and transport.cpp use the HTTP library.
#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>

#include "controller/client/cluster_config.h"

namespace pm::k8s {

struct HttpRequest {
  std::string method, path;  ///< path with query, already encoded
  std::string body, content_type;
  std::map<std::string, std::string> headers;
};

struct HttpReply {
  int status = 0;                              ///< 0: no complete response, see failure
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
  std::string failure;  ///< why there is no complete response
};

struct Deadlines {
  std::chrono::milliseconds connect{3000};  ///< TCP, and again the TLS handshake
  std::chrono::milliseconds read{30000};    ///< silence between bytes
  std::chrono::milliseconds total{30000};   ///< of one request; 0: none (streams)
  size_t max_body = size_t{64} << 20;       ///< bytes of a response that is not streamed
};

/// A persistent connection that is opened on demand and reopened. It handles one request at a time and is not
/// thread-safe.
class Connection {
 public:
  /// Reads certificates now, so that a new connection sees rotated files. Throws ConfigError.
  Connection(const ClusterConfig&, Deadlines);
  ~Connection();

  /// Sends a request and receives the complete response. A requested stop (from any thread) ends it within the connect
  /// deadline.
  HttpReply send(const HttpRequest&, std::stop_token stop);

  /// Hands a 200's body piece by piece to `receive` until it ends, receive returns false (no failure then), or stop is
  /// requested. Other replies come back whole.
  HttpReply stream(const HttpRequest&, std::stop_token stop, const std::function<bool(std::string_view)>& receive);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// A plain HTTP server for health and metrics: GET only, small requests, two threads.
class HttpServer {
 public:
  struct Answer {
    int status = 200;
    std::string body, content_type = "text/plain; charset=utf-8";
  };
  /// Binds now; port 0 takes a free one. Throws ConfigError when the port is taken. `routes` maps a path to what
  /// answers it; answers are made on the server's threads.
  HttpServer(const std::string& address, int port, std::map<std::string, std::function<Answer()>> routes);
  ~HttpServer();
  int port() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::k8s
