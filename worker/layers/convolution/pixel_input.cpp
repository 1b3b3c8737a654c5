// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/convolution/pixel_input.h"

#include <ATen/ATen.h>

#include <numbers>

namespace pm::layers {

at::Tensor fourier_positions(const policy::FourierPositions& fourier, int64_t rows, int64_t columns,
                             at::Device device) {
  const at::TensorOptions options = at::TensorOptions(at::kFloat).device(device);
  const std::vector<at::Tensor> sides =
      at::meshgrid({at::linspace(-1, 1, rows, options), at::linspace(-1, 1, columns, options)}, "ij");
  const at::Tensor places = at::stack({sides[0].flatten(), sides[1].flatten()}, 1);  // [pixels, 2]
  std::vector<at::Tensor> frequencies;
  for (const int64_t side : fourier.resolution)
    frequencies.push_back(at::linspace(1, static_cast<double>(side) / 2, fourier.bands, options));
  const at::Tensor angles = (places.unsqueeze(2) * at::stack(frequencies)).flatten(1) * std::numbers::pi;
  return at::cat({places, angles.sin(), angles.cos()}, 1);
}

PixelInput::PixelInput(const policy::Pixels& pixels, Loader& loader) : fourier_(pixels.fourier) {
  if (pixels.convolution) convolution_.emplace(*pixels.convolution, loader);
  if (pixels.projection) projection_.emplace(*pixels.projection, loader);
  if (pixels.positions) positions_.emplace(*pixels.positions, loader);
  if (pixels.position_projection) position_projection_.emplace(*pixels.position_projection, loader);
}

/// Returns the values of an image's cells [cells, values] of its pixels [1, values, height, width].
at::Tensor PixelInput::values(const at::Tensor& image) const {
  at::Tensor x = image;
  if (convolution_) {
    x = (*convolution_)(x);
    x = at::max_pool2d(at::relu_(x), /*kernel_size=*/{3, 3}, /*stride=*/{2, 2});
  }
  x = x[0].flatten(1).t().contiguous();
  return projection_ ? (*projection_)(x) : x;
}

at::Tensor PixelInput::positions(int64_t rows, int64_t columns, at::Device device, comm::Communicator& comm) const {
  if (!positions_) return fourier_positions(fourier_, rows, columns, device);
  at::Tensor x = positions_->partial(at::arange(rows * columns, at::TensorOptions(at::kLong).device(device)));
  if (comm.size() > 1) comm.all_reduce(x = x.contiguous());
  return position_projection_ ? (*position_projection_)(x) : x;
}

at::Tensor PixelInput::operator()(const std::vector<Pictures>& all, comm::Communicator& comm) const {
  std::vector<at::Tensor> rows;
  at::Tensor places;  // of the last images; those of one size have the same
  std::array<int64_t, 2> size{};
  for (const Pictures& pictures : all) {
    const std::array<int64_t, 2> cells{pictures.cells.size(1), pictures.cells.size(2)};
    if (cells != size) places = positions(cells[0], cells[1], pictures.pixels.device(), comm);
    size = cells;
    for (int64_t image = 0; image < pictures.pixels.size(0); ++image)
      rows.push_back(at::cat({values(pictures.pixels.narrow(0, image, 1)), places}, 1));
  }
  return rows.size() == 1 ? rows[0] : at::cat(rows);
}

}  // namespace pm::layers
