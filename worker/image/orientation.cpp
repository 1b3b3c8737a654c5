// SPDX-License-Identifier: Apache-2.0
// Reads the EXIF orientation and rotates images upright.
#include <optional>

#include "worker/image/image.h"

namespace pm::image {
namespace {

using namespace std::string_view_literals;

/// Reads an unsigned number of `n` bytes at `at`; 0 past the end.
uint32_t number(std::string_view data, size_t at, size_t n, bool big) {
  if (at > data.size() || n > data.size() - at) return 0;
  uint32_t value = 0;
  for (size_t i = 0; i < n; ++i) value = value << 8 | static_cast<uint8_t>(data[at + (big ? i : n - 1 - i)]);
  return value;
}

/// Returns tag 274 of the first directory of a TIFF structure.
int from_tiff(std::string_view tiff) {
  const bool big = tiff.starts_with("MM\0*"sv);
  if (!big && !tiff.starts_with("II*\0"sv)) return 1;
  const size_t directory = number(tiff, 4, 4, big);
  const size_t entries = number(tiff, directory, 2, big);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = directory + 2 + 12 * i;
    if (number(tiff, entry, 2, big) != 274) continue;
    const uint32_t value = number(tiff, entry + 8, 2, big);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

/// Returns the TIFF structure in the first APP1 that holds EXIF.
std::string_view exif_of_jpeg(std::string_view file) {
  for (size_t at = 2; at + 4 <= file.size() && file[at] == '\xff';) {
    const auto marker = static_cast<uint8_t>(file[at + 1]);
    if (marker == 0xff) {  // fill byte
      ++at;
      continue;
    }
    if (marker == 0xda || marker == 0xd9) break;  // the picture itself
    const size_t length = number(file, at + 2, 2, true);
    if (length < 2 || length > file.size() - at - 2) break;
    const auto data = file.substr(at + 4, length - 2);
    if (marker == 0xe1 && data.starts_with("Exif\0\0"sv)) return data.substr(6);
    at += 2 + length;
  }
  return {};
}

std::string_view exif_of_png(std::string_view file) {
  for (size_t at = 8; at + 12 <= file.size();) {
    const size_t length = number(file, at, 4, true);
    if (length > file.size() - at - 12) break;
    if (file.substr(at + 4, 4) == "eXIf"sv) return file.substr(at + 8, length);
    at += 12 + length;
  }
  return {};
}

/// Returns the chunk EXIF of a WebP, with or without the name that JPEG has before it.
std::string_view exif_of_webp(std::string_view file) {
  for (size_t at = 12; at + 8 <= file.size();) {
    const size_t length = number(file, at + 4, 4, false);
    if (length > file.size() - at - 8) break;
    if (file.substr(at, 4) == "EXIF"sv) {
      const auto data = file.substr(at + 8, length);
      return data.starts_with("Exif\0\0"sv) ? data.substr(6) : data;
    }
    at += 8 + length + length % 2;
  }
  return {};
}

}  // namespace

int orientation(std::string_view file) {
  return from_tiff(file.starts_with("\xff\xd8"sv) ? exif_of_jpeg(file)
                   : file.starts_with("RIFF"sv)   ? exif_of_webp(file)
                                                  : exif_of_png(file));
}

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  const bool turned = orientation >= 5;  // rows become columns
  Image out{turned ? image.height : image.width, turned ? image.width : image.height,
            std::vector<uint8_t>(image.rgb.size())};
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool from_below = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  for (int64_t y = 0; y < out.height; ++y) {
    for (int64_t x = 0; x < out.width; ++x) {
      const int64_t u = turned ? y : x, v = turned ? x : y;  // where the pixel is stored, before mirroring
      const int64_t column = from_right ? image.width - 1 - u : u, row = from_below ? image.height - 1 - v : v;
      for (int64_t c = 0; c < 3; ++c)
        out.rgb[static_cast<size_t>((y * out.width + x) * 3 + c)] =
            image.rgb[static_cast<size_t>((row * image.width + column) * 3 + c)];
    }
  }
  return out;
}

}  // namespace pm::image
