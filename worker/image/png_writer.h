// SPDX-License-Identifier: Apache-2.0
// Writes images of one channel as PNG.
#pragma once
#include <cstdint>
#include <span>
#include <string>

namespace pm::image {

/// Returns a PNG with 8 bits of gray per pixel. `gray` has them row by row: gray[y * width + x]. Throws
/// std::logic_error for another number of pixels, std::runtime_error when libpng fails.
std::string encode_png(std::span<const uint8_t> gray, int64_t width, int64_t height);

}  // namespace pm::image
