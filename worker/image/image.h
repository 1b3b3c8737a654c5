// SPDX-License-Identifier: Apache-2.0
// An image in memory, and its decoding from PNG, JPEG and WebP to the RGB of Pillow's convert("RGB").
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace pm::image {

/// Three bytes per pixel, row by row: rgb[(y * width + x) * 3 + channel].
struct Image {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
  bool operator==(const Image&) const = default;
};

/// Limits that are checked before anything of an image's size is allocated.
struct Limits {
  int64_t pixels = 40'000'000;  ///< width x height, of a file and of what it is resized to
  int scans = 100;              ///< of a progressive JPEG; each scan reads all coefficients
};

/// Decodes a PNG, JPEG or WebP, distinguished by their first bytes. As Pillow: alpha and transparency are dropped, gray
/// is repeated, palettes are looked up, 16-bit colours keep their high byte, 16-bit grays are clipped at 255, CMYK is
/// Adobe's. Then the image is rotated as its EXIF orientation says, as transformers' pipelines do when they load an
/// image. Throws Error{ImageRefused} for another format or a damaged file, Error{ImageTooLarge}
/// beyond the limits.
Image open(std::string_view file, const Limits& limits = {});

/// The sides of an image in pixels.
struct Sides {
  int64_t width = 0, height = 0;
};

/// Returns the sides of the image that open() makes of a file, of which it reads the header alone. Throws as open().
Sides sides_of(std::string_view file, const Limits& limits = {});

Image decode_png(std::string_view file, const Limits& limits);
Image decode_jpeg(std::string_view file, const Limits& limits);
Image decode_webp(std::string_view file, const Limits& limits);
Sides png_sides(std::string_view file, const Limits& limits);
Sides jpeg_sides(std::string_view file, const Limits& limits);
Sides webp_sides(std::string_view file, const Limits& limits);

/// Returns EXIF's orientation tag (1 to 8) of a PNG's eXIf, a JPEG's APP1 or a WebP's EXIF; 1 where there is none or it
/// cannot be read.
int orientation(std::string_view file);
/// Mirrors and rotates an image stored with this orientation so that it is upright (TIFF 6.0, tag 274).
Image upright(Image image, int orientation);

}  // namespace pm::image
