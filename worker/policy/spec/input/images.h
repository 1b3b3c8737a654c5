// SPDX-License-Identifier: Apache-2.0
// What makes cells of images: a residual network of convolutions, and the positions of its cells.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/convolution.h"
#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// A convolution over both sides of an image, then batch normalization with statistics at rest. It is padded by half of
/// its size, so that only the stride makes an image smaller.
struct ImageConvolution {
  Param kernel;  ///< [channels out, channels in, size, size]; the size is odd
  BatchNorm norm;
  int64_t stride = 1, dilation = 1;
};

/// act(convolutions(x) + shortcut(x)), with a ReLU after each convolution but the last.
struct ResidualBlock {
  std::vector<ImageConvolution> convolutions;
  std::optional<ImageConvolution> shortcut;  ///< absent: x itself
};

/// A residual network (He et al., "Deep residual learning", 2016): a stem with max pooling over 3 x 3 pixels by a
/// stride of 2, then stages of blocks. The cells of the last stage are what tokens are elsewhere.
struct Backbone {
  std::string mask;  ///< what a request calls the mask [images, height, width] of pixels that are no padding
  int64_t channels = 3;
  ImageConvolution stem;
  std::vector<std::vector<ResidualBlock>> stages;
  Activation activation = Activation::Relu;  ///< after the stem, and after the sum of each block

  /// Returns the rows and columns of cells that an image of this height and width has.
  std::array<int64_t, 2> cells(int64_t height, int64_t width) const;
  /// Returns the channels of what a stage gives; 0 where the checkpoint lacks the tensors.
  int64_t channels_of(size_t stage) const;
  void collect(ParamCollector&) const;
};

/// Positions of cells, half of the width for the row and half for the column. Learned: rows of two tables. Sine: the
/// numbers of visible cells up to this one, of 2 pi times their share, in sines and cosines one after another (Carion
/// et al., "End-to-end object detection with transformers", 2020).
struct GridPosition {
  std::optional<Param> rows, columns;  ///< [most rows, hidden / 2], likewise; absent: sines

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
