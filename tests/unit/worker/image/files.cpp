// SPDX-License-Identifier: Apache-2.0
// Generates the PNG and JPEG files of the image tests.
#include "tests/unit/worker/image/files.h"

#include <jpeglib.h>
#include <png.h>
#include <cstdio>
#include <cstdlib>

#include <stdexcept>

namespace pm::test {

image::Image gradient(int64_t width, int64_t height) {
  image::Image image{width, height, {}};
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t value : {x * 255 / width, y * 255 / height, ((x ^ y) & 1) * 200})
        image.rgb.push_back(static_cast<uint8_t>(value));
  return image;
}

std::string png(const image::Image& image) {
  png_image writer{};
  writer.version = PNG_IMAGE_VERSION;
  writer.width = static_cast<png_uint_32>(image.width);
  writer.height = static_cast<png_uint_32>(image.height);
  writer.format = PNG_FORMAT_RGB;
  png_alloc_size_t size = 0;
  png_image_write_get_memory_size(writer, size, 0, image.rgb.data(), 0, nullptr);
  std::string file(size, '\0');
  if (!png_image_write_to_memory(&writer, file.data(), &size, 0, image.rgb.data(), 0, nullptr))
    throw std::runtime_error(writer.message);
  file.resize(size);
  return file;
}

std::string jpeg(const image::Image& image, int quality, bool progressive) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(image.rgb.data() + info.next_scanline * static_cast<size_t>(image.width) * 3);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string file(reinterpret_cast<char*>(bytes), size);
  std::free(bytes);
  return file;
}

std::string png_header(uint32_t width, uint32_t height) {
  std::string file = png(gradient(1, 1));
  std::string chunk = "IHDR";
  for (uint32_t value : {width, height})
    for (int shift = 24; shift >= 0; shift -= 8) chunk += static_cast<char>(value >> shift);
  chunk += file.substr(8 + 8 + 8, 5);
  uint32_t crc = ~0u;
  for (unsigned char byte : chunk) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0);
  }
  for (int shift = 24; shift >= 0; shift -= 8) chunk += static_cast<char>(~crc >> shift);
  return file.replace(8 + 4, chunk.size(), chunk);
}

std::string with_orientation(const std::string& jpeg, int orientation) {
  using namespace std::string_literals;
  const std::string tiff =
      "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"s + static_cast<char>(orientation) + "\0\0\0\0\0\0\0"s;
  const std::string data = "Exif\0\0"s + tiff;
  return jpeg.substr(0, 2) + "\xff\xe1"s + '\0' + static_cast<char>(data.size() + 2) + data + jpeg.substr(2);
}

}  // namespace pm::test
