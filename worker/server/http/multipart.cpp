// SPDX-License-Identifier: Apache-2.0
#include "worker/server/http/multipart.h"

#include <algorithm>

#include "worker/server/http/api_error.h"

namespace pm::server {
namespace {

ApiError malformed(const std::string& what) {
  return ApiError(400, "malformed_request", "the body is no multipart/form-data: " + what);
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool begins_with(std::string_view text, std::string_view small) {
  return text.size() >= small.size() &&
         std::equal(small.begin(), small.end(), text.begin(), [](char a, char b) { return a == lower(b); });
}

std::string_view trim(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  return text.substr(0, text.find_last_not_of(" \t") + 1);
}

/// Returns a parameter of a header, behind a ';': name=word or name="text", in which a backslash stands before a quote.
std::optional<std::string> parameter(std::string_view header, std::string_view name) {
  for (size_t at = header.find(';'); at < header.size();) {
    const std::string_view rest = trim(header.substr(at + 1));
    const bool found = begins_with(rest, name) && rest.size() > name.size() && rest[name.size()] == '=';
    std::string value;
    bool quoted = false;
    for (at += 1; at < header.size() && (quoted || header[at] != ';'); ++at) {
      if (header[at] == '"')
        quoted = !quoted;
      else if (quoted && header[at] == '\\' && at + 1 < header.size())
        value += header[++at];
      else
        value += header[at];
    }
    if (!found) continue;
    const std::string_view word = trim(value);
    return std::string(trim(word.substr(word.find('=') + 1)));
  }
  return std::nullopt;
}

/// Reads the headers of a part; others than Content-Disposition have no meaning here.
Part read_headers(std::string_view headers, size_t number) {
  Part part;
  bool named = false;
  while (!headers.empty()) {
    const size_t end = std::min(headers.find("\r\n"), headers.size());
    const std::string_view line = headers.substr(0, end);
    headers.remove_prefix(std::min(end + 2, headers.size()));
    if (!begins_with(line, "content-disposition:")) continue;
    if (!begins_with(trim(line.substr(line.find(':') + 1)), "form-data"))
      throw malformed("part " + std::to_string(number) + " is not form-data");
    const auto name = parameter(line, "name");
    named = name.has_value();
    part.name = name.value_or("");
    part.is_file = parameter(line, "filename").has_value() || parameter(line, "filename*").has_value();
  }
  if (!named) throw malformed("part " + std::to_string(number) + " has no name in its Content-Disposition");
  return part;
}

}  // namespace

bool is_multipart(std::string_view content_type) { return begins_with(content_type, "multipart/form-data"); }

std::vector<Part> parse_multipart(std::string_view content_type, std::string_view body) {
  const std::string boundary = parameter(content_type, "boundary").value_or("");
  if (boundary.empty() || boundary.size() > 70)  // RFC 2046
    throw malformed("its Content-Type has no boundary of 1 to 70 characters");
  const std::string delimiter = "\r\n--" + boundary;
  std::vector<Part> parts;
  size_t at = 0;
  if (body.starts_with(std::string_view(delimiter).substr(2)))
    at = delimiter.size() - 2;
  else if (at = body.find(delimiter); at == body.npos)
    throw malformed("it does not contain the boundary --" + boundary);
  else
    at += delimiter.size();
  for (;;) {
    if (body.substr(at).starts_with("--")) return parts;
    if (!body.substr(at).starts_with("\r\n"))
      throw malformed("behind boundary " + std::to_string(parts.size() + 1) + " stands neither a line end nor --");
    if (parts.size() == max_parts) throw malformed("it has more than " + std::to_string(max_parts) + " parts");
    const size_t number = parts.size() + 1, headers_end = body.find("\r\n\r\n", at);
    if (headers_end == body.npos || headers_end - at > max_part_header_bytes)
      throw malformed("the headers of part " + std::to_string(number) + " do not end within " +
                      std::to_string(max_part_header_bytes) + " bytes");
    const size_t headers = std::min(at + 2, headers_end);
    Part part = read_headers(body.substr(headers, headers_end - headers), number);
    const size_t content = headers_end + 4, end = body.find(delimiter, headers_end + 2);
    if (end == body.npos) throw malformed("part " + std::to_string(number) + " does not end with the boundary");
    part.content = end < content ? std::string_view() : body.substr(content, end - content);
    parts.push_back(std::move(part));
    at = end + delimiter.size();
  }
}

}  // namespace pm::server
