// From pictures to a model's pixel_values, as the checkpoint's preprocessor_config.json says.
#pragma once
#include <array>
#include <filesystem>
#include <optional>
#include <string>

#include "worker/base/array.h"
#include "worker/image/image.h"
#include "worker/image/resize.h"

namespace pm::image {

/// transformers' image processors of the CLIP and ViT kind (their PIL path): resize, crop the centre, scale, normalise.
struct Processor {
  bool do_resize = true, do_center_crop = false, do_rescale = true, do_normalize = true;
  int64_t shortest_edge = 0;                 ///< to which the shorter side is resized; 0: to height x width, whatever the shape
  int64_t height = 224, width = 224;
  int64_t crop_height = 224, crop_width = 224;
  Filter resample = Filter::Bilinear;
  double rescale_factor = 1 / 255.0;
  std::array<double, 3> mean{0.5, 0.5, 0.5}, std{0.5, 0.5, 0.5};

  /// From preprocessor_config.json of a checkpoint folder, or the "image_processor" of processor_config.json; nothing when there is neither.
  /// What a file does not say is the default of its class: CLIPImageProcessor, ViTImageProcessor, DeiTImageProcessor, with the older
  /// spellings (CLIPFeatureExtractor, ...Fast). Throws Error{Model, "ModelUnreadable"} that names another class, or a value that is not served.
  static std::optional<Processor> read(const std::filesystem::path& folder);

  /// pixel_values [1, 3, height, width] of one image. Throws Error{Request, "ImageTooLarge"} when the resized image would exceed the limits.
  Array operator()(const Image& image, const Limits& limits = {}) const;

  /// The image after resize and crop, still bytes.
  Image framed(const Image& image, const Limits& limits = {}) const;
};

/// The middle of an image; where it is smaller, black is put around it, the odd row and column above and to the left.
Image center_crop(const Image& image, int64_t width, int64_t height);

}  // namespace pm::image
