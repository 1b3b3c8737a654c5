// SPDX-License-Identifier: Apache-2.0
// Pixels of images as the rows of a stack: values of each pixel, or of a cell that a convolution makes, beside its
// position.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/input/images.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// Positions of pixels without parameters: row and column from -1 to 1, then of each the sines of pi times it times
/// every frequency, then the cosines. Frequencies of a side go in even steps from 1 to half of `resolution` (Jaegle et
/// al., "Perceiver IO", 2021).
struct FourierPositions {
  int64_t bands = 64;
  std::array<int64_t, 2> resolution{};  ///< height and width

  /// Returns the numbers of a position.
  int64_t width() const { return 2 + 4 * bands; }
};

struct Pixels {
  std::string input = "pixel_values";  ///< name in the request: [images, channels, height, width], with several frames
                                       ///< [images, frames, channels, height, width]
  int64_t channels = 3;
  int64_t frames = 1;                           ///< values of all frames stand beside each other
  std::array<int64_t, 2> image{};               ///< height and width of every image; 0: any
  std::optional<ImageConvolution> convolution;  ///< then a ReLU and the largest of 3 x 3 cells by a stride of 2
  std::optional<Linear> projection;             ///< of the values; its matrix may be a convolution of 1 x 1 pixels
  std::optional<Param> positions;               ///< [pixels, width], learned; absent: Fourier's
  std::optional<Linear> position_projection;
  FourierPositions fourier;

  /// Returns the rows and columns of cells that an image of this height and width has; 0 where it is too small.
  std::array<int64_t, 2> cells(int64_t height, int64_t width) const;
  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
