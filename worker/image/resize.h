// Resampling as Pillow does it, to the byte.
#pragma once
#include "worker/image/image.h"

namespace pm::image {

/// Pillow's numbers (PIL.Image.Resampling), as preprocessor_config.json spells "resample".
enum class Filter { Nearest = 0, Lanczos = 1, Bilinear = 2, Bicubic = 3, Box = 4, Hamming = 5 };

/// The image at another size. When shrinking, the filter's support grows with the factor (antialias). Two passes, columns then rows, with
/// 22-bit fixed-point weights and bytes in between. Source: Pillow up to 12,
/// src/libImaging/Resample.c and Geometry.c (nearest); Pillow 13 resamples rows first where that is cheaper, which moves some bytes by one.
Image resize(const Image& image, int64_t width, int64_t height, Filter filter);

}  // namespace pm::image
