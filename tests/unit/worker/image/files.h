// SPDX-License-Identifier: Apache-2.0
// Generates PNG and JPEG files with the libraries' own writers.
#pragma once
#include <string>

#include "worker/image/image.h"

namespace pm::test {

/// Returns an image whose pixels all differ slightly: smooth in x and y, a checkerboard in blue.
image::Image gradient(int64_t width, int64_t height);
/// Returns the image as a PNG, RGB with 8 bits.
std::string png(const image::Image& image);
std::string jpeg(const image::Image& image, int quality = 95, bool progressive = false);
/// Returns a PNG that declares this size and contains almost no data.
std::string png_header(uint32_t width, uint32_t height);
/// Returns the JPEG with an EXIF segment of this orientation at the front.
std::string with_orientation(const std::string& jpeg, int orientation);

}  // namespace pm::test
