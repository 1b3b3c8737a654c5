// SPDX-License-Identifier: Apache-2.0
#include "worker/models/heads/images/pixel_shuffle.h"

#include <ATen/ATen.h>

namespace pm::models {

PixelShuffleHead::PixelShuffleHead(const policy::Model& model, const policy::Head& head,
                                   const policy::PixelShuffleSpec& pixels, layers::Loader& loader)
    : Head(model, head),
      size_(pixels.size),
      weight_(loader.load(pixels.linear.weight)),
      bias_(pixels.linear.bias ? loader.load(*pixels.linear.bias) : at::Tensor()) {}

void PixelShuffleHead::validate(const policy::Model& model, const policy::Head& head, const policy::PixelShuffleSpec&) {
  const policy::Stack* stack = model.stack(head.stack);
  if (!stack || !stack->input.reads_images() || policy::changes_rows(*stack))
    policy::refuse_architecture(model, "has pixels of states that are not those of an image's patches");
}

void PixelShuffleHead::run(std::span<RequestForward> requests) const {
  const policy::Input& input = model_.stack(head_.stack)->input;
  const std::vector<int64_t>& patch = input.projection->weight.shape;
  const int64_t rows = input.image[0] / patch[2], columns = input.image[1] / patch[3], extra = input.extra_tokens();
  for (RequestForward& request : requests) {
    if (request.comm.rank() != 0 || !needs_head(model_, head_, request)) continue;
    const at::Tensor& states = request.states.at(head_.stack);
    const at::Tensor patches =
        states.reshape({-1, extra + rows * columns, states.size(1)}).narrow(1, extra, rows * columns);
    const at::Tensor maps = patches.transpose(1, 2).reshape({patches.size(0), patches.size(2), rows, columns});
    const at::Tensor bias = bias_.defined() ? bias_.to(at::kFloat) : bias_;
    const at::Tensor pixels = at::conv2d(maps.to(at::kFloat), weight_.to(at::kFloat), bias);
    request.put(head_.outputs[0], at::pixel_shuffle(pixels, size_));
  }
}

}  // namespace pm::models
