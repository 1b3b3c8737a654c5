// SPDX-License-Identifier: Apache-2.0
// Decodes PNG with libpng.
#include <png.h>
#include <csetjmp>
#include <cstring>

#include "worker/image/refusal.h"

namespace pm::image {
namespace {

/// A libpng decoder. libpng reports errors by longjmp, so that its output lives here, outside of the functions that it
/// jumps over.
struct Reader {
  explicit Reader(std::string_view file) : file(file) {
    png = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, on_error, [](png_structp, png_const_charp) {});
    info = png ? png_create_info_struct(png) : nullptr;
    if (!info) {
      png_destroy_read_struct(&png, nullptr, nullptr);
      throw std::bad_alloc();
    }
    png_set_read_fn(png, this, read);
    png_set_crc_action(png, PNG_CRC_ERROR_QUIT, PNG_CRC_WARN_DISCARD);
    png_set_chunk_cache_max(png, 64);
    png_set_chunk_malloc_max(png, 1 << 20);
  }
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  [[noreturn]] static void on_error(png_structp png, png_const_charp text) {
    auto* self = static_cast<Reader*>(png_get_error_ptr(png));
    std::strncpy(self->message, text, sizeof self->message - 1);
    png_longjmp(png, 1);
  }
  static void read(png_structp png, png_bytep to, size_t n) {
    auto* self = static_cast<Reader*>(png_get_io_ptr(png));
    if (n > self->file.size() - self->at) png_error(png, "the file ends too early");
    std::memcpy(to, self->file.data() + self->at, n);
    self->at += n;
  }
  /// Reads the header and sets the output format. Returns false when libpng failed.
  bool head() {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_info(png, info);
    width = png_get_image_width(png, info);
    height = png_get_image_height(png, info);
    const int depth = png_get_bit_depth(png, info);
    const int colour = png_get_color_type(png, info);
    wide_gray = depth == 16 && colour == PNG_COLOR_TYPE_GRAY;
    if (colour == PNG_COLOR_TYPE_PALETTE)
      png_set_palette_to_rgb(png);
    else if (colour == PNG_COLOR_TYPE_GRAY && depth < 8)
      png_set_expand_gray_1_2_4_to_8(png);
    if (depth == 16 && !wide_gray) png_set_strip_16(png);
    // A palette with transparency is expanded to RGBA, whatever its colour type says.
    if ((colour & PNG_COLOR_MASK_ALPHA) || png_get_valid(png, info, PNG_INFO_tRNS)) png_set_strip_alpha(png);
    if (colour == PNG_COLOR_TYPE_GRAY_ALPHA || (colour == PNG_COLOR_TYPE_GRAY && !wide_gray)) png_set_gray_to_rgb(png);
    png_set_interlace_handling(png);
    png_read_update_info(png, info);
    row_bytes = png_get_rowbytes(png, info);
    return true;
  }
  bool pixels(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png))) return false;
    png_read_image(png, rows);
    return true;
  }

  const std::string_view file;
  size_t at = 0;
  png_structp png = nullptr;
  png_infop info = nullptr;
  int64_t width = 0, height = 0;
  size_t row_bytes = 0;
  bool wide_gray = false;
  char message[128] = "";
};

}  // namespace

Sides png_sides(std::string_view file, const Limits& limits) {
  Reader reader(file);
  if (!reader.head()) throw refused(std::string("PNG: ") + reader.message);
  check_size(reader.width, reader.height, limits, "the PNG");
  return {reader.width, reader.height};
}

Image decode_png(std::string_view file, const Limits& limits) {
  Reader reader(file);
  if (!reader.head()) throw refused(std::string("PNG: ") + reader.message);
  check_size(reader.width, reader.height, limits, "the PNG");
  const auto height = static_cast<size_t>(reader.height),
             row = static_cast<size_t>(reader.width) * (reader.wide_gray ? 2 : 3);
  if (reader.row_bytes != row)
    throw refused("PNG: rows of " + std::to_string(reader.row_bytes) + " bytes instead of " + std::to_string(row));
  std::vector<uint8_t> bytes(height * row);
  std::vector<png_bytep> rows(height);
  for (size_t y = 0; y < height; ++y) rows[y] = bytes.data() + y * row;
  if (!reader.pixels(rows.data())) throw refused(std::string("PNG: ") + reader.message);
  Image image{reader.width, reader.height, {}};
  if (!reader.wide_gray) {
    image.rgb = std::move(bytes);
    return image;
  }
  image.rgb.resize(bytes.size() / 2 * 3);
  for (size_t i = 0; i < bytes.size() / 2;
       ++i) {  // big endian; values above 255 are clipped, as Pillow's I;16 to RGB does
    const uint8_t gray = bytes[2 * i] ? 255 : bytes[2 * i + 1];
    std::fill_n(image.rgb.data() + 3 * i, 3, gray);
  }
  return image;
}

}  // namespace pm::image
