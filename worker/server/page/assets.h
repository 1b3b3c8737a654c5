// SPDX-License-Identifier: Apache-2.0
// The style and the script of the page at /.
#pragma once
#include <string_view>

namespace pm::server {

extern const std::string_view page_style, page_script;

}  // namespace pm::server
