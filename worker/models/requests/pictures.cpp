// SPDX-License-Identifier: Apache-2.0
#include "worker/models/requests/pictures.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/models/requests/arrays.h"

namespace pm::models {

layers::Pictures read_pictures(const policy::Model& model, const policy::Input& input, RequestTensors& tensors) {
  const policy::Backbone& backbone = *input.backbone;
  const Array* array = tensors.find("pixel_values");
  tensors.find(backbone.mask);
  if (!array) refuse("the inputs have no tensor \"pixel_values\"");
  if (!std::holds_alternative<std::vector<float>>(array->values)) refuse("pixel_values has integers, expected fp32");
  const at::Tensor pixels = tensor_of(*array);
  if (pixels.dim() != 4 || pixels.numel() == 0 || pixels.size(1) != backbone.channels)
    refuse("pixel_values has the shape " + c10::str(pixels.sizes()) + ", expected [images, " +
           std::to_string(backbone.channels) + ", height, width]");
  const auto [rows, columns] = backbone.cells(pixels.size(2), pixels.size(3));
  if (const auto& table = input.grid->rows; table && std::max(rows, columns) > table->shape[0])
    refuse("pixel_values has images of " + std::to_string(pixels.size(2)) + " x " + std::to_string(pixels.size(3)) +
           " pixels, which make " + std::to_string(rows) + " x " + std::to_string(columns) + " cells; " +
           model.architecture + " has positions for " + std::to_string(table->shape[0]) + " on each side");
  layers::Pictures pictures{.pixels = pixels, .cells = at::ones({pixels.size(0), rows, columns}, at::kBool)};
  const at::Tensor mask = tensors.mask(backbone.mask, {pixels.size(0), pixels.size(2), pixels.size(3)});
  if (!mask.defined()) return pictures;
  const std::vector<int64_t> size{rows, columns};
  pictures.cells = at::upsample_nearest2d(mask.to(at::kFloat).unsqueeze(0), size)[0].to(at::kBool);
  for (int64_t image = 0; image < pictures.cells.size(0); ++image) {
    if (!pictures.cells[image].any().item<bool>())
      refuse(backbone.mask + " hides image " + std::to_string(image) + ": none of its " + std::to_string(rows) + " x " +
             std::to_string(columns) + " cells shows a pixel with a 1");
  }
  return pictures;
}

layers::Pictures read_pixels(const policy::Model& model, const policy::Pixels& described, RequestTensors& tensors) {
  constexpr int64_t most_pixels = int64_t{1} << 18;  // of an image: every one is a row that latents read
  const std::string& name = described.input;
  const Array* array = tensors.find(name);
  if (!array) refuse("the inputs have no tensor \"" + name + "\"");
  if (!std::holds_alternative<std::vector<float>>(array->values)) refuse(name + " has integers, expected fp32");
  at::Tensor pixels = tensor_of(*array);
  const bool several = described.frames > 1;
  const auto [height, width] = described.image;
  const int64_t dims = several ? 5 : 4;
  const bool fits = pixels.dim() == dims && pixels.numel() > 0 && pixels.size(dims - 3) == described.channels &&
                    (!several || pixels.size(1) == described.frames) &&
                    (height == 0 || (pixels.size(dims - 2) == height && pixels.size(dims - 1) == width));
  if (!fits) {
    const auto side = [](int64_t size, const char* any) { return size > 0 ? std::to_string(size) : any; };
    refuse(name + " has the shape " + c10::str(pixels.sizes()) + ", expected [images, " +
           (several ? std::to_string(described.frames) + " frames, " : "") + std::to_string(described.channels) +
           " channels, " + side(height, "height") + ", " + side(width, "width") + "]");
  }
  if (several) pixels = pixels.flatten(1, 2);
  const auto [rows, columns] = described.cells(pixels.size(2), pixels.size(3));
  const std::string size = std::to_string(pixels.size(2)) + " x " + std::to_string(pixels.size(3));
  if (rows < 1 || columns < 1)
    refuse(name + " has images of " + size + " pixels, too small for the convolution of " + model.architecture);
  if (rows > most_pixels / columns)
    refuse(name + " has images of " + size + " pixels, which make " + std::to_string(rows) + " x " +
           std::to_string(columns) + " rows; at most 2^18 are read");
  return {.pixels = pixels, .cells = at::ones({pixels.size(0), rows, columns}, at::kBool)};
}

at::Tensor read_masked_patches(const policy::Model& model, const policy::Stack& stack, int64_t images, int64_t patches,
                               RequestTensors& tensors) {
  const auto head = std::find_if(model.heads.begin(), model.heads.end(), [&](const policy::Head& one) {
    return one.stack == stack.name && one.as<policy::PixelShuffleSpec>();
  });
  if (head == model.heads.end()) return {};
  const std::string name = "bool_masked_pos";
  const at::Tensor masked = tensors.mask(name, {images, patches});
  if (!masked.defined()) return at::zeros({images, patches}, at::kBool);
  const std::vector<int64_t>& patch = stack.input.projection->weight.shape;
  const int64_t side = head->as<policy::PixelShuffleSpec>()->size;
  if (patch[2] != side || patch[3] != side)
    refuse(name + " masks patches of " + std::to_string(patch[2]) + " x " + std::to_string(patch[3]) +
           " pixels, and the model fills in squares of " + std::to_string(side) +
           " (encoder_stride); leave it out, or use a checkpoint where both are equal");
  if (!stack.input.mask_token)
    refuse(name + " masks patches, and the checkpoint has no mask_token to put in their place; leave it out");
  return masked.to(at::kBool);
}

}  // namespace pm::models
