// SPDX-License-Identifier: Apache-2.0
// Cuts images of any size into patches, as Qwen2-VL's image processor does.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "worker/image/processor.h"
#include "worker/image/refusal.h"

namespace pm::image {
namespace {

constexpr int64_t max_ratio = 200;  // of the longer side to the shorter one

/// A size in pixels.
struct Size {
  double width, height;
};

/// Returns the size that an image is resized to. The steps, and where they round, are transformers' (smart_resize);
/// whole numbers stay far below 2^53, so that doubles hold them as exactly as Python does.
Size smart_resize(Size from, double factor, double min_pixels, double max_pixels) {
  const double pixels = from.width * from.height;
  // nearbyint goes to the even one of two as near, as Python's round does
  Size to{std::nearbyint(from.width / factor) * factor, std::nearbyint(from.height / factor) * factor};
  if (to.width * to.height > max_pixels) {
    const double beta = std::sqrt(pixels / max_pixels);
    const auto less = [&](double side) { return std::max(factor, std::floor(side / beta / factor) * factor); };
    to = {less(from.width), less(from.height)};
  } else if (to.width * to.height < min_pixels) {
    const double beta = std::sqrt(min_pixels / pixels);
    const auto more = [&](double side) { return std::ceil(side * beta / factor) * factor; };
    to = {more(from.width), more(from.height)};
  }
  return to;
}

std::string said(int64_t width, int64_t height) {
  return "the image has " + std::to_string(width) + " x " + std::to_string(height) + " pixels; ";
}

/// Returns the rows and columns of patches of an image that is shrunk within a size, and whose sides are rounded up to
/// whole squares of patches. The steps are transformers' (get_resize_output_image_size of Pixtral).
std::pair<int64_t, int64_t> shrunk_grid(const PatchLayout& layout, int64_t width, int64_t height) {
  const double ratio = std::max(static_cast<double>(height) / static_cast<double>(layout.within[0]),
                                static_cast<double>(width) / static_cast<double>(layout.within[1]));
  const auto shrunk = [&](int64_t side) {
    return ratio > 1 ? static_cast<int64_t>(std::floor(static_cast<double>(side) / ratio)) : side;
  };
  const int64_t factor = layout.patch * layout.merge, down = (shrunk(height) - 1 + factor) / factor,
                across = (shrunk(width) - 1 + factor) / factor;
  if (shrunk(height) < 1 || shrunk(width) < 1)
    throw Error(Reason::ImageRefused, said(width, height) + "it is too thin to be shrunk to " +
                                          std::to_string(layout.within[1]) + " x " + std::to_string(layout.within[0]));
  return {down * layout.merge, across * layout.merge};
}

const PatchLayout& layout_of(const Processor& processor) {
  if (!processor.patches) throw std::logic_error("this image processor gives no patches");
  return *processor.patches;
}

}  // namespace

std::pair<int64_t, int64_t> Processor::patch_grid(int64_t width, int64_t height) const {
  const PatchLayout& layout = layout_of(*this);
  if (width < 1 || height < 1) throw refused("it has no pixels");
  const int64_t factor = layout.patch * layout.merge;
  if (!do_resize) {
    if (width % factor != 0 || height % factor != 0)
      throw Error(Reason::ImageRefused, said(width, height) + "the model takes multiples of " + std::to_string(factor) +
                                            " and its images are not resized");
    return {height / layout.patch, width / layout.patch};
  }
  if (layout.is_whole()) return shrunk_grid(layout, width, height);
  const Size from{static_cast<double>(width), static_cast<double>(height)};
  if (std::max(from.width, from.height) / std::min(from.width, from.height) > max_ratio)
    throw Error(Reason::ImageRefused, said(width, height) + "the longer side may have at most " +
                                          std::to_string(max_ratio) + " times those of the shorter one");
  const Size to = smart_resize(from, static_cast<double>(factor), static_cast<double>(layout.min_pixels),
                               static_cast<double>(layout.max_pixels));
  return {static_cast<int64_t>(to.height) / layout.patch, static_cast<int64_t>(to.width) / layout.patch};
}

PatchedImage Processor::patched(const Image& image, const Limits& limits) const {
  const PatchLayout& layout = layout_of(*this);
  if (layout.is_whole()) throw std::logic_error("this image processor gives whole images");
  const auto [down, across] = patch_grid(image.width, image.height);
  const int64_t patch = layout.patch, merge = layout.merge, frames = layout.frames, area = patch * patch;
  const int64_t width = across * patch, height = down * patch;
  check_size(width, height, limits, do_resize ? "the resized image" : "the image");
  const Image pixels = do_resize ? resize(image, width, height, resample) : image;
  const std::array<std::array<float, 256>, 3> tables{levels(0), levels(1), levels(2)};

  std::vector<float> values(static_cast<size_t>(width * height * 3 * frames));
  float* to = values.data();
  const auto cut = [&](int64_t left, int64_t top) {
    for (size_t c = 0; c < 3; ++c) {
      const float* frame = to;
      for (int64_t y = top; y < top + patch; ++y) {
        const uint8_t* row = pixels.rgb.data() + (y * width + left) * 3 + c;
        for (int64_t x = 0; x < patch; ++x) *to++ = tables[c][row[3 * x]];
      }
      for (int64_t i = 1; i < frames; ++i) to = std::copy_n(frame, area, to);
    }
  };
  for (int64_t square_y = 0; square_y < down; square_y += merge)
    for (int64_t square_x = 0; square_x < across; square_x += merge)
      for (int64_t y = square_y; y < square_y + merge; ++y)
        for (int64_t x = square_x; x < square_x + merge; ++x) cut(x * patch, y * patch);
  return {{{down * across, 3 * frames * area}, std::move(values)}, down, across};
}

}  // namespace pm::image
