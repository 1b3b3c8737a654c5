// SPDX-License-Identifier: Apache-2.0
// Formats a number of bytes for messages.
#pragma once
#include <cstdint>
#include <string>

namespace pm::base {

/// 1,536 -> "1.5 KiB": binary units, one decimal, whole bytes below 1 KiB.
std::string format_bytes(int64_t bytes);

}  // namespace pm::base
