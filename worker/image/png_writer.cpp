// SPDX-License-Identifier: Apache-2.0
#include "worker/image/png_writer.h"

#include <png.h>

#include <stdexcept>

namespace pm::image {

std::string encode_png(std::span<const uint8_t> gray, int64_t width, int64_t height) {
  if (width < 1 || height < 1 || gray.size() != static_cast<size_t>(width * height))
    throw std::logic_error("an image has " + std::to_string(gray.size()) + " pixels, and a size of " +
                           std::to_string(width) + " x " + std::to_string(height));
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = PNG_FORMAT_GRAY;
  png_alloc_size_t size = 0;
  const auto written = [&](void* to) {  // without `to` only the size is found
    if (png_image_write_to_memory(&image, to, &size, /*convert_to_8_bit=*/0, gray.data(), /*row_stride=*/0, nullptr) ==
        0)
      throw std::runtime_error("libpng wrote no PNG of " + std::to_string(width) + " x " + std::to_string(height) +
                               " pixels: " + image.message);
  };
  written(nullptr);
  std::string file(size, '\0');
  written(file.data());
  file.resize(size);
  return file;
}

}  // namespace pm::image
