// SPDX-License-Identifier: Apache-2.0
// Decodes WebP, lossy and lossless, with libwebp. Transparency is left out, as Pillow leaves it out of RGB.
#include <webp/decode.h>

#include "worker/image/refusal.h"

namespace pm::image {

namespace {

const uint8_t* bytes_of(std::string_view file) { return reinterpret_cast<const uint8_t*>(file.data()); }

}  // namespace

Sides webp_sides(std::string_view file, const Limits& limits) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes_of(file), file.size(), &features) != VP8_STATUS_OK)
    throw refused("WebP: its header is broken");
  if (features.has_animation) throw refused("WebP: it is an animation; send one picture of it");
  check_size(features.width, features.height, limits, "the WebP");
  return {features.width, features.height};
}

Image decode_webp(std::string_view file, const Limits& limits) {
  const Sides sides = webp_sides(file, limits);
  Image image{sides.width, sides.height, {}};
  const size_t row = static_cast<size_t>(image.width) * 3;
  image.rgb.resize(row * static_cast<size_t>(image.height));
  if (!WebPDecodeRGBInto(bytes_of(file), file.size(), image.rgb.data(), image.rgb.size(), static_cast<int>(row)))
    throw refused("WebP: its data are broken");
  return image;
}

}  // namespace pm::image
