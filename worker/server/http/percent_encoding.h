// SPDX-License-Identifier: Apache-2.0
// Decodes percent-encoding in a request's target (RFC 3986, section 2.1).
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pm::server {

/// Decodes %XX; '+' stays '+'. Throws ApiError 400 for a '%' without two hexadecimal digits.
std::string percent_decode(std::string_view text);

/// Returns the decoded name=value pairs of a query; a name without '=' has the value "".
std::vector<std::pair<std::string, std::string>> parse_query(std::string_view query);

}  // namespace pm::server
