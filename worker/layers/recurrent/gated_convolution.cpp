// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/recurrent/gated_convolution.h"

#include <ATen/ATen.h>

namespace pm::layers {

ShortConvolution::ShortConvolution(const policy::ShortConvolution& block, Loader& loader)
    : in_({&block.before, &block.behind, &block.input}, loader),
      taps_{loader.weight(block.convolution.weight)},
      out_(block.out, loader) {
  if (block.convolution.bias) biases_.push_back(loader.weight(*block.convolution.bias));
}

at::Tensor ShortConvolution::operator()(const at::Tensor& x, const Batch& batch, LayerState* state,
                                        comm::Communicator&) const {
  const at::Tensor projected = in_(x).to(at::kFloat);
  const int64_t channels = projected.size(1) / 3;
  const auto part = [&](int64_t number) { return projected.narrow(1, number * channels, channels); };
  const at::Tensor sums =
      run(part(0) * part(2), {}, convolution(taps_, biases_, /*activated=*/false), {}, batch, state);
  return (part(1) * sums).to(x.scalar_type());
}

}  // namespace pm::layers
