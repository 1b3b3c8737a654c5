// PNG and JPEG files made on the spot by the libraries' own writers.
#pragma once
#include <string>

#include "worker/image/image.h"

namespace pm::test {

/// A picture whose pixels all differ a little: smooth in x and y, a checker in blue.
image::Image gradient(int64_t width, int64_t height);
/// RGB, 8 bits.
std::string png(const image::Image& image);
std::string jpeg(const image::Image& image, int quality = 95, bool progressive = false);
/// A PNG that declares this size and holds almost nothing.
std::string png_header(uint32_t width, uint32_t height);
/// A JPEG with an EXIF segment of this orientation in front.
std::string with_orientation(const std::string& jpeg, int orientation);

}  // namespace pm::test
