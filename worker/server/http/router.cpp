// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/router.h"

#include <optional>
#include <string_view>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

/// Returns the part of a path that a route's '*' stands for, "" for a route without one; nothing for another path.
std::optional<std::string_view> match(std::string_view route, std::string_view path) {
  const size_t star = route.find('*');
  const std::string_view before = route.substr(0, star), after = star == route.npos ? "" : route.substr(star + 1);
  if (star == route.npos
          ? path != route
          : path.size() < before.size() + after.size() || !path.starts_with(before) || !path.ends_with(after))
    return std::nullopt;
  return path.substr(before.size(), path.size() - before.size() - after.size());
}

}  // namespace

void Router::add(std::string method, std::string path, Handler handler, Operation operation, bool expensive) {
  routes_.push_back({std::move(method), std::move(path), std::move(handler), std::move(operation), expensive});
}

http::Response Router::route(const http::Request& request, std::shared_ptr<AccessLogEntry> access) const {
  std::string allowed;
  for (const auto& route : routes_) {
    const auto suffix = match(route.path, request.path);
    if (!suffix) continue;
    access->route = route.path;
    const bool head = request.method == "HEAD" && route.method == "GET" && !route.expensive;
    if (request.method == route.method || head) return route.handler({request, std::string(*suffix), access});
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
