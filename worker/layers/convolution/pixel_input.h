// SPDX-License-Identifier: Apache-2.0
// Makes rows of the pixels of images: their values beside their positions.
#pragma once
#include <optional>

#include "worker/layers/batch.h"
#include "worker/layers/convolution/convolution.h"
#include "worker/layers/lookup.h"
#include "worker/policy/spec/input/pixels.h"

namespace pm::layers {

/// Returns the positions of the pixels [rows x columns, policy::FourierPositions::width()] F32, row by row.
at::Tensor fourier_positions(const policy::FourierPositions&, int64_t rows, int64_t columns, at::Device);

class PixelInput {
 public:
  PixelInput(const policy::Pixels&, Loader&);
  /// Returns the rows of all images one after another [cells, values + positions] F32.
  at::Tensor operator()(const std::vector<Pictures>&, comm::Communicator&) const;

 private:
  at::Tensor values(const at::Tensor& image) const;
  at::Tensor positions(int64_t rows, int64_t columns, at::Device, comm::Communicator&) const;
  policy::FourierPositions fourier_;
  std::optional<ImageConvolution> convolution_;
  std::optional<Linear> projection_;
  std::optional<Table> positions_;
  std::optional<Linear> position_projection_;
};

}  // namespace pm::layers
