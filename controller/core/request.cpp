// SPDX-License-Identifier: Apache-2.0
#include "controller/core/request.h"

#include <stdexcept>

#include "base/percent.h"

namespace pm::k8s {
namespace {

/// Encodes a path segment. The API server allows none of the rejected names, and a proxy may rewrite a path with them.
std::string segment(const std::string& text, const char* what) {
  if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos ||
      text.find('%') != std::string::npos) {
    throw std::invalid_argument(std::string(what) + " \"" + text + "\" cannot be part of a path");
  }
  return std::string("/").append(base::percent_encode(text));
}

bool names_object(Verb verb) { return verb != Verb::List && verb != Verb::Create; }

std::map<std::string, std::string> query_of(const Request& request) {
  auto query = request.query;
  const bool writes = request.verb == Verb::Create || request.verb == Verb::Apply || request.verb == Verb::MergePatch;
  if (writes && !request.field_manager.empty()) query["fieldManager"] = request.field_manager;
  if (request.verb == Verb::Apply) query["force"] = request.force ? "true" : "false";
  return query;
}

}  // namespace

bool failed(const Response& response) { return std::holds_alternative<ApiError>(response); }
const Json& object_of(const Response& response) { return std::get<Json>(response); }
const ApiError& error_of(const Response& response) { return std::get<ApiError>(response); }

std::string path_of(const Request& request) {
  const Resource& resource = request.resource;
  std::string path = resource.group.empty() ? "/api" : "/apis" + segment(resource.group, "group");
  path += segment(resource.version, "version");
  if (resource.namespaced && (!request.ns.empty() || request.verb != Verb::List)) {
    path += "/namespaces" + segment(request.ns, "namespace");
  }
  path += segment(resource.plural, "resource");
  if (names_object(request.verb)) path += segment(request.name, "name");
  if (!request.subresource.empty()) path += segment(request.subresource, "subresource");
  char separator = '?';
  for (const auto& [name, value] : query_of(request)) {
    path.append(1, separator).append(base::percent_encode(name)).append("=").append(base::percent_encode(value));
    separator = '&';
  }
  return path;
}

}  // namespace pm::k8s
