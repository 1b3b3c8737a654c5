// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/router.h"

#include "worker/server/http/api_error.h"

namespace pm::server {

void Router::add(std::string method, std::string path, Handler handler, Operation operation, bool expensive) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler), std::move(operation), expensive});
}

http::Response Router::route(const http::Request& request, std::shared_ptr<AccessLogEntry> access) const {
  std::string allowed;
  for (const auto& route : routes_) {
    const bool prefix = route.path.ends_with('*');
    const std::string_view fixed(route.path.data(), route.path.size() - (prefix ? 1 : 0));
    if (prefix ? !request.path.starts_with(fixed) : request.path != fixed) continue;
    access->route = route.path;
    const bool head = request.method == "HEAD" && route.method == "GET" && !route.expensive;
    if (request.method == route.method || head)
      return route.handler({request, request.path.substr(fixed.size()), access});
    allowed += (allowed.empty() ? "" : ", ") + route.method;
  }
  if (!allowed.empty())
    throw ApiError(405, "method_not_allowed",
                   request.method + " is not supported at " + access->route + "; allowed: " + allowed);
  std::string known;
  for (const auto& route : routes_) known += (known.empty() ? "" : ", ") + route.method + " " + route.path;
  throw ApiError(404, "not_found", "no such path; available: " + known);
}

}  // namespace pm::server
