// SPDX-License-Identifier: Apache-2.0
// Decodes an image, or reads its sides, by the format of its first bytes.
#include <algorithm>
#include <utility>

#include "worker/image/refusal.h"

namespace pm::image {

namespace {

constexpr int first_turned = 5;  // of EXIF's orientations: those from here on exchange width and height

/// Returns what the function of the file's format makes of it.
template <typename Function>
auto by_format(std::string_view file, const Limits& limits, Function png, Function jpeg, Function webp) {
  using namespace std::string_view_literals;
  if (file.starts_with("\x89PNG\r\n\x1a\n"sv)) return png(file, limits);
  if (file.starts_with("\xff\xd8\xff"sv)) return jpeg(file, limits);
  if (file.starts_with("RIFF"sv) && file.substr(std::min<size_t>(8, file.size())).starts_with("WEBP"sv))
    return webp(file, limits);
  throw refused("it is neither PNG nor JPEG nor WebP; convert it to one of these");
}

}  // namespace

Image open(std::string_view file, const Limits& limits) {
  return upright(by_format(file, limits, decode_png, decode_jpeg, decode_webp), orientation(file));
}

Sides sides_of(std::string_view file, const Limits& limits) {
  Sides sides = by_format(file, limits, png_sides, jpeg_sides, webp_sides);
  if (orientation(file) >= first_turned) std::swap(sides.width, sides.height);
  return sides;
}

}  // namespace pm::image
