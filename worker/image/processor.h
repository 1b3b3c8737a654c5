// SPDX-License-Identifier: Apache-2.0
// Image preprocessing: images to a model's pixel_values, as the checkpoint's preprocessor_config.json says.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>

#include "worker/base/array.h"
#include "worker/image/image.h"
#include "worker/image/resize.h"

namespace pm::image {

/// How Qwen2-VL's processor cuts images of any size into patches. An image keeps about its own size: its sides become
/// multiples of patch x merge, and where its pixels are too few or too many, both sides are scaled alike.
struct PatchLayout {
  int64_t patch = 14;  ///< pixels of a patch's side (patch_size)
  int64_t merge = 2;   ///< patches of the side of a square that the model merges into one token (merge_size)
  int64_t frames = 2;  ///< frames of one patch; a still image is repeated for all (temporal_patch_size)
  /// Of the resized image. Strips may exceed both, as no side becomes less than patch x merge and both are rounded.
  int64_t min_pixels = 56 * 56, max_pixels = 28 * 28 * 1280;
  /// Pixtral: height and width within which images are shrunk, and which of them stay whole, in place of the four
  /// numbers above; 0: Qwen2-VL. `patch` and `merge` are what the model has, whatever the file says.
  std::array<int64_t, 2> within{};

  bool is_whole() const { return within[0] > 0; }
};

/// An image as rows of patches.
struct PatchedImage {
  /// [down * across, 3 * frames * patch * patch]: squares of merge x merge patches one after another, both the squares
  /// and the patches of one row by row; in a patch channels, frames, rows, columns.
  Array patches;
  int64_t down = 0, across = 0;  ///< rows and columns of patches: image_grid_thw's second and third number
};

/// Transformers' image processors of CLIP, ViT, DeiT, DETR, Perceiver, SigLIP, Gemma 3, Qwen2-VL and Pixtral (their PIL
/// implementation): resize, center crop, rescale, normalise. Perceiver's crops before it resizes. That of DETR pads
/// images of a batch; here each image is alone, so that none is padded. That of Qwen2-VL, which Qwen2.5-VL, Qwen3-VL
/// and Qwen3.5 have too, gives patches (patched()) and does not crop. Pixtral's, which Mistral 3 has, gives whole
/// images whose sides are multiples of a square of patches.
struct Processor {
  bool do_resize = true, do_center_crop = false, do_rescale = true, do_normalize = true;
  bool crops_first = false;   ///< the crop keeps height / crop_height of the shorter side, and the same of width
  int64_t shortest_edge = 0;  ///< target of the shorter side; 0: resize to height x width
  int64_t longest_edge = 0;   ///< the shorter side's target is less where the longer one would exceed this; 0: no limit
  int64_t height = 224, width = 224;
  int64_t crop_height = 224, crop_width = 224;
  Filter resample = Filter::Bilinear;
  double rescale_factor = 1 / 255.0;
  std::array<double, 3> mean{0.5, 0.5, 0.5}, std{0.5, 0.5, 0.5};
  std::optional<PatchLayout> patches;  ///< of Qwen2-VL's and Pixtral's; they use none of the sides and edges above

  /// Reads preprocessor_config.json of a checkpoint folder, or the "image_processor" of processor_config.json; returns
  /// nothing when there is neither. Missing keys have the defaults of their class: CLIPImageProcessor,
  /// ViTImageProcessor, DeiTImageProcessor, DetrImageProcessor, PerceiverImageProcessor, SiglipImageProcessor,
  /// Gemma3ImageProcessor without pan and scan, Qwen2VLImageProcessor, PixtralImageProcessor, with the older spellings
  /// (CLIPFeatureExtractor, ...Fast). Throws Error{ModelUnreadable} for another class or an unsupported value.
  static std::optional<Processor> read(const std::filesystem::path& folder);

  /// Returns the pixel_values [1, 3, height, width] of one image. Throws Error{ImageTooLarge} when the
  /// resized image would exceed the limits, std::logic_error where images are cut into patches; and for images that
  /// stay
  /// whole what patch_grid() throws.
  Array operator()(const Image& image, const Limits& limits = {}) const;

  /// Returns the image after resize and crop, still bytes. Throws as operator() does.
  Image resize_and_crop(const Image& image, const Limits& limits = {}) const;

  /// Returns the pixel_values of one image as patches. Throws as patch_grid() does, and Error{ImageTooLarge} when the
  /// resized image would exceed the limits.
  PatchedImage patched(const Image& image, const Limits& limits = {}) const;

  /// Returns the rows and the columns of patches that patched() cuts an image of this size into. Throws
  /// Error{ImageRefused} for an image that is more than 200 times as long as it is wide, or the reverse (Pixtral: that
  /// has no pixels in one direction where it is shrunk), and, without do_resize, for sides that are no multiples of
  /// patch x merge. Throws std::logic_error where `patches` is not set.
  std::pair<int64_t, int64_t> patch_grid(int64_t width, int64_t height) const;

  /// Returns what each byte of a channel becomes by rescale and normalise.
  std::array<float, 256> levels(size_t channel) const;
};

/// Returns the centre of an image. A smaller image is padded with black, with the odd row and column above and to the
/// left.
Image center_crop(const Image& image, int64_t width, int64_t height);

}  // namespace pm::image
