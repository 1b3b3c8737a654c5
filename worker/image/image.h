// A picture in memory, and the files it comes from: PNG and JPEG, decoded to the RGB that Pillow's convert("RGB") gives.
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

/// What a file may ask for before anything of that size is allocated.
struct Limits {
  int64_t pixels = 40'000'000;   ///< width x height, of a file and of what it is resized to
  int scans = 100;               ///< of a progressive JPEG: each costs a pass over all coefficients
};

/// Decodes a PNG or JPEG, told apart by their first bytes. As Pillow: alpha and transparency are dropped, gray is repeated, palettes are
/// looked up, 16-bit colours keep their high byte, 16-bit grays are clipped at 255, CMYK is Adobe's. Then the picture is turned upright as
/// its EXIF orientation says, which is what transformers' pipelines do when they load an image.
/// Throws Error{Request, "ImageRefused"} for another format or a damaged file, Error{Request, "ImageTooLarge"} beyond the limits.
Image open(std::string_view file, const Limits& limits = {});

Image decode_png(std::string_view file, const Limits& limits);
Image decode_jpeg(std::string_view file, const Limits& limits);

/// EXIF's orientation tag (1 to 8) of a PNG's eXIf or a JPEG's APP1; 1 where there is none or it cannot be read.
int orientation(std::string_view file);
/// Mirrored and turned so that an image stored with this orientation stands upright (TIFF 6.0, tag 274).
Image upright(Image image, int orientation);

}  // namespace pm::image
