// Which handler answers a method and path.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "worker/server/http.h"
#include "worker/server/operation.h"

namespace pm::server {

/// What the access log says of a request beyond its status; shared with the stream that outlives the handler.
struct Access {
  std::string route = "(none)";   ///< as registered, never the client's text
  int64_t tokens = 0;             ///< generated
};

struct Call {
  const http::Request& request;
  std::string rest;               ///< of the path, still percent-encoded, where the route ends in '*'
  std::shared_ptr<Access> access;
};

/// HEAD is answered as GET; it must therefore cost nothing: routes that generate are `expensive`.
class Router {
 public:
  using Handler = std::function<http::Response(const Call&)>;
  struct Route { std::string method, path; Handler handler; Operation operation; bool expensive = false; };
  /// `path` is matched whole, or as a prefix when it ends in '*'. The first match wins. `operation` is what GET /openapi.json says of it.
  void add(std::string method, std::string path, Handler handler, Operation operation = {}, bool expensive = false);
  /// Throws ApiError 404 or 405 (with the methods that the path has) when no route fits.
  http::Response route(const http::Request&, std::shared_ptr<Access>) const;
  const std::vector<Route>& routes() const { return routes_; }

 private:
  std::vector<Route> routes_;
};

}  // namespace pm::server
