// Percent-encoding of a request's target (RFC 3986 2.1).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pm::server {

/// Decodes %XX; '+' stays '+'. Throws ApiError 400 at a '%' without two hexadecimal digits.
std::string percent_decode(std::string_view text);

/// The name=value pairs of a query, decoded; a name without '=' has the value "".
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

}  // namespace pm::server
