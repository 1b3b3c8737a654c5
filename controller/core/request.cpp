#include "controller/core/request.h"

#include <stdexcept>

namespace pm::k8s {
namespace {

bool unreserved(unsigned char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_' || c == '~';
}

/// RFC 3986: everything but unreserved characters. Stricter than servers ask for, and never ambiguous.
std::string encode(const std::string& text) {
  static const char hex[] = "0123456789ABCDEF";
  std::string out;
  for (unsigned char c : text) {
    if (unreserved(c)) {
      out += static_cast<char>(c);
    } else {
      out += {'%', hex[c >> 4], hex[c & 15]};
    }
  }
  return out;
}

/// A path segment. The API server allows neither of the refused names, and a proxy may rewrite a path that holds them.
std::string segment(const std::string& text, const char* what) {
  if (text.empty() || text == "." || text == ".." || text.find('/') != std::string::npos || text.find('%') != std::string::npos) {
    throw std::invalid_argument(std::string(what) + " \"" + text + "\" cannot be part of a path");
  }
  return std::string("/").append(encode(text));
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
    path.append(1, separator).append(encode(name)).append("=").append(encode(value));
    separator = '&';
  }
  return path;
}

}  // namespace pm::k8s
