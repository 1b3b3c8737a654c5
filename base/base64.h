// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes base64 (RFC 4648).
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace pm::base {

/// Returns the text in the plain alphabet, with padding.
std::string encode_base64(std::string_view bytes);
/// Accepts the plain and the URL-safe alphabet. White space is skipped; padding may be absent, but must be right where
/// it stands. Returns nothing for text that is not base64.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace pm::base
