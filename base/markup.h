// SPDX-License-Identifier: Apache-2.0
// Writes text into HTML and SVG.
#pragma once
#include <string>
#include <string_view>

namespace pm::base {

/// Returns the text for use between tags and in attributes of HTML and XML: & < > " are written as entities.
std::string escape_markup(std::string_view text);

}  // namespace pm::base
