// SPDX-License-Identifier: Apache-2.0
// Selects the handler of a request by its method and path.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/server/http/http.h"
#include "worker/server/http/operation.h"

namespace pm::server {

/// Fields of the access log that handlers fill in, shared with the stream that outlives the handler.
struct AccessLogEntry {
  std::string route = "(none)";  ///< the registered path, never the client's text
  int64_t tokens = 0;            ///< generated tokens
};

/// A request together with its matched route.
struct RoutedRequest {
  const http::Request& request;
  std::string path_suffix;  ///< the part of the path that matched '*', still percent-encoded
  std::shared_ptr<AccessLogEntry> access;
};

/// The routing table. HEAD is answered by the GET handler, unless the route is `expensive`, as those that generate are.
class Router {
 public:
  using Handler = std::function<http::Response(const RoutedRequest&)>;
  struct Route {
    std::string method, path;
    Handler handler;
    Operation operation;
    bool expensive = false;
  };
  /// Adds a route. A '*' in `path` stands for any text, the rest is matched as it is; the first match wins. `operation`
  /// describes the route in GET /openapi.json.
  void add(std::string method, std::string path, Handler handler, Operation operation = {}, bool expensive = false);
  /// Calls the handler of the matching route. Throws ApiError 404, or 405 with the methods of the path, if none
  /// matches.
  http::Response route(const http::Request&, std::shared_ptr<AccessLogEntry>) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
};

}  // namespace pm::server
