// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/convolution.h"

#include <algorithm>

namespace pm::policy {

namespace {

/// Returns the number of taps; 1 where the checkpoint lacks the tensor.
int64_t taps(const Convolution& convolution) {
  return convolution.kernel.weight.shape.empty() ? 1 : convolution.kernel.weight.shape.back();
}

}  // namespace

int64_t Convolutions::frames(int64_t length) const {
  for (const Convolution& layer : this->layers) {
    const int64_t reach = length + 2 * layer.padding - taps(layer);
    if (length < 1 || reach < 0) return 0;
    length = reach / layer.stride + 1;
  }
  return length;
}

int64_t Convolutions::length(int64_t frames) const {
  if (exact_length > 0) return exact_length;
  int64_t length = frames;
  for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer)
    length = std::max<int64_t>(1, (length - 1) * layer->stride + taps(*layer) - 2 * layer->padding);
  return length;
}

void Convolutions::collect(ParamCollector& all) const {
  for (const Convolution& layer : layers) {
    all.add(layer.kernel);
    all.add(layer.norm);
  }
}

void ConvolutionBranch::collect(ParamCollector& all) const {
  all.add(kernel);
  all.add(norm);
}

void PositionalConvolution::collect(ParamCollector& all) const {
  all.add(kernel);
  all.add(gain);
  if (batch_norm)
    for (const Param* param : {&batch_norm->mean, &batch_norm->variance, &batch_norm->weight, &batch_norm->bias})
      all.add(*param);
  all.add(norm);
}

}  // namespace pm::policy
