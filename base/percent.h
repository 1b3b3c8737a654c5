// SPDX-License-Identifier: Apache-2.0
// Percent-encodes text for the path and the query of a URL (RFC 3986, section 2.1).
#pragma once
#include <string>
#include <string_view>

namespace pm::base {

/// Encodes everything except the unreserved characters (letters, digits and -._~) and those of `keep`.
std::string percent_encode(std::string_view text, std::string_view keep = {});

}  // namespace pm::base
