// SPDX-License-Identifier: Apache-2.0
// Decodes JPEG with libjpeg-turbo.
#include <csetjmp>
#include <cstdio>  // jpeglib.h uses FILE and size_t without including them

// clang-format off: jerror.h completes jpeglib.h
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include "worker/image/refusal.h"

namespace pm::image {
namespace {

/// A libjpeg decoder. libjpeg reports errors by longjmp, so that its output lives here, outside of the functions that
/// it jumps over.
struct Reader {
  explicit Reader(std::string_view file, int max_scans) : max_scans(max_scans) {
    info.err = jpeg_std_error(&errors);
    errors.error_exit = on_error;
    errors.emit_message = on_message;
    info.client_data = this;
    progress.progress_monitor = on_progress;
    if (!create(file)) throw refused(std::string("JPEG: ") + message);
  }
  ~Reader() { jpeg_destroy_decompress(&info); }
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  static Reader& of(j_common_ptr common) { return *static_cast<Reader*>(common->client_data); }
  [[noreturn]] static void on_error(j_common_ptr common) {
    auto& self = of(common);
    common->err->format_message(common, self.message);
    longjmp(self.place, 1);
  }
  /// Treats a file that ends too early as an error, as Pillow does; other warnings are ignored.
  static void on_message(j_common_ptr common, int level) {
    if (level < 0 && common->err->msg_code == JWRN_JPEG_EOF) on_error(common);
  }
  static void on_progress(j_common_ptr common) {
    auto& self = of(common);
    if (self.info.input_scan_number <= self.max_scans) return;
    std::snprintf(self.message, sizeof self.message, "more than %d scans", self.max_scans);
    longjmp(self.place, 1);
  }
  bool create(std::string_view file) {
    if (setjmp(place)) return false;
    jpeg_create_decompress(&info);
    info.progress = &progress;
    jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    return true;
  }
  bool head() {
    if (setjmp(place)) return false;
    jpeg_read_header(&info, TRUE);
    inks = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
    info.out_color_space = inks ? JCS_CMYK : JCS_RGB;
    return true;
  }
  bool start() {
    if (setjmp(place)) return false;
    jpeg_start_decompress(&info);
    return true;
  }
  bool rows(JSAMPROW to, size_t row_bytes) {
    if (setjmp(place)) return false;
    while (info.output_scanline < info.output_height) {
      JSAMPROW row = to + info.output_scanline * row_bytes;
      jpeg_read_scanlines(&info, &row, 1);
    }
    jpeg_finish_decompress(&info);
    return true;
  }

  const int max_scans;
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  jpeg_progress_mgr progress{};
  std::jmp_buf place{};
  char message[JMSG_LENGTH_MAX] = "";
  bool inks = false;
};

/// Converts Adobe's inverted CMYK (255: no ink) to RGB, with Pillow's rounding of a product of bytes.
std::vector<uint8_t> from_inks(const std::vector<uint8_t>& cmyk) {
  std::vector<uint8_t> rgb(cmyk.size() / 4 * 3);
  for (size_t i = 0; i < cmyk.size() / 4; ++i) {
    const int light = cmyk[4 * i + 3];
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[4 * i + c]) * light + 128;  // Pillow: light - ink * light / 255, rounded
      rgb[3 * i + c] = static_cast<uint8_t>(light - (((product >> 8) + product) >> 8));
    }
  }
  return rgb;
}

}  // namespace

Sides jpeg_sides(std::string_view file, const Limits& limits) {
  Reader reader(file, limits.scans);
  if (!reader.head()) throw refused(std::string("JPEG: ") + reader.message);
  check_size(reader.info.image_width, reader.info.image_height, limits, "the JPEG");
  return {reader.info.image_width, reader.info.image_height};
}

Image decode_jpeg(std::string_view file, const Limits& limits) {
  Reader reader(file, limits.scans);
  const auto fail = [&] { return refused(std::string("JPEG: ") + reader.message); };
  if (!reader.head()) throw fail();
  check_size(reader.info.image_width, reader.info.image_height, limits, "the JPEG");
  if (!reader.start()) throw fail();
  Image image{reader.info.output_width, reader.info.output_height, {}};
  const size_t row = static_cast<size_t>(image.width) * (reader.inks ? 4 : 3);
  std::vector<uint8_t> bytes(static_cast<size_t>(image.height) * row);
  if (!reader.rows(bytes.data(), row)) throw fail();
  image.rgb = reader.inks ? from_inks(bytes) : std::move(bytes);
  return image;
}

}  // namespace pm::image
