// SPDX-License-Identifier: Apache-2.0
// Decodes an image by the format of its first bytes.
#include <algorithm>

#include "worker/image/refusal.h"

namespace pm::image {

Image open(std::string_view file, const Limits& limits) {
  using namespace std::string_view_literals;
  Image image;
  if (file.starts_with("\x89PNG\r\n\x1a\n"sv))
    image = decode_png(file, limits);
  else if (file.starts_with("\xff\xd8\xff"sv))
    image = decode_jpeg(file, limits);
  else if (file.starts_with("RIFF"sv) && file.substr(std::min<size_t>(8, file.size())).starts_with("WEBP"sv))
    image = decode_webp(file, limits);
  else
    throw refused("it is neither PNG nor JPEG nor WebP; convert it to one of these");
  return upright(std::move(image), orientation(file));
}

}  // namespace pm::image
