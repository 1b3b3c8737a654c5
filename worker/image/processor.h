// SPDX-License-Identifier: Apache-2.0
// Image preprocessing: images to a model's pixel_values, as the checkpoint's preprocessor_config.json says.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "worker/base/array.h"
#include "worker/image/image.h"
#include "worker/image/resize.h"

namespace pm::image {

/// Transformers' image processors of CLIP, ViT, DeiT, DETR, Perceiver, SigLIP and Gemma 3 (their PIL implementation):
/// resize, center crop, rescale, normalise. Perceiver's crops before it resizes. That of DETR pads images of a batch;
/// here each image is alone, so that none is padded.
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

  /// Reads preprocessor_config.json of a checkpoint folder, or the "image_processor" of processor_config.json; returns
  /// nothing when there is neither. Missing keys have the defaults of their class: CLIPImageProcessor,
  /// ViTImageProcessor, DeiTImageProcessor, DetrImageProcessor, PerceiverImageProcessor, SiglipImageProcessor,
  /// Gemma3ImageProcessor without pan and scan, with the older spellings
  /// (CLIPFeatureExtractor, ...Fast). Throws Error{ModelUnreadable} for another class or an unsupported value.
  static std::optional<Processor> read(const std::filesystem::path& folder);

  /// Returns the pixel_values [1, 3, height, width] of one image. Throws Error{ImageTooLarge} when the
  /// resized image would exceed the limits.
  Array operator()(const Image& image, const Limits& limits = {}) const;

  /// Returns the image after resize and crop, still bytes.
  Image resize_and_crop(const Image& image, const Limits& limits = {}) const;
};

/// Returns the centre of an image. A smaller image is padded with black, with the odd row and column above and to the
/// left.
Image center_crop(const Image& image, int64_t width, int64_t height);

}  // namespace pm::image
