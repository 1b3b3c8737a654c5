// SPDX-License-Identifier: Apache-2.0
// Divides a body of multipart/form-data (RFC 7578) into its parts.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace pm::server {

/// A field of a form. The content lies in the body.
struct Part {
  std::string name;
  bool is_file = false;  ///< it has a file name
  std::string_view content;
};

constexpr size_t max_parts = 64, max_part_header_bytes = 4096;

bool is_multipart(std::string_view content_type);

/// Returns the parts in order. Throws ApiError 400 "malformed_request" for a content type without boundary, and for a
/// body that does not consist of parts with names or exceeds the limits.
std::vector<Part> parse_multipart(std::string_view content_type, std::string_view body);

}  // namespace pm::server
