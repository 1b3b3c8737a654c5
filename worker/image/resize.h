// SPDX-License-Identifier: Apache-2.0
// Image resizing, byte for byte as Pillow does it.
#pragma once
#include "worker/image/image.h"

namespace pm::image {

/// Pillow's filter numbers (PIL.Image.Resampling), as "resample" of preprocessor_config.json spells them.
enum class Filter { Nearest = 0, Lanczos = 1, Bilinear = 2, Bicubic = 3, Box = 4, Hamming = 5 };

/// Returns the image at another size. When shrinking, the filter's support grows with the factor (antialias). Columns
/// are resampled first, then rows, with 22-bit fixed-point weights and bytes in between. Source: Pillow up to 12,
/// src/libImaging/Resample.c and Geometry.c (nearest); Pillow 13 resamples rows first where that is cheaper, which
/// changes some bytes by one.
Image resize(const Image& image, int64_t width, int64_t height, Filter filter);

}  // namespace pm::image
