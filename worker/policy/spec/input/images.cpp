// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/input/images.h"

namespace pm::policy {

namespace {

void collect(const ImageConvolution& convolution, ParamCollector& all) {
  all.add(convolution.kernel);
  for (const Param* param :
       {&convolution.norm.mean, &convolution.norm.variance, &convolution.norm.weight, &convolution.norm.bias})
    all.add(*param);
}

int64_t shortened(int64_t length, int64_t stride) { return (length - 1) / stride + 1; }

}  // namespace

std::array<int64_t, 2> Backbone::cells(int64_t height, int64_t width) const {
  std::array<int64_t, 2> cells{height, width};
  for (int64_t& side : cells) {
    side = shortened(shortened(side, stem.stride), 2);
    for (const std::vector<ResidualBlock>& stage : stages)
      for (const ResidualBlock& block : stage)
        for (const ImageConvolution& convolution : block.convolutions) side = shortened(side, convolution.stride);
  }
  return cells;
}

int64_t Backbone::channels_of(size_t stage) const {
  const Param& kernel = stages[stage].back().convolutions.back().kernel;
  return kernel.shape.empty() ? 0 : kernel.shape[0];
}

void Backbone::collect(ParamCollector& all) const {
  policy::collect(stem, all);
  for (const std::vector<ResidualBlock>& stage : stages) {
    for (const ResidualBlock& block : stage) {
      for (const ImageConvolution& convolution : block.convolutions) policy::collect(convolution, all);
      if (block.shortcut) policy::collect(*block.shortcut, all);
    }
  }
}

void GridPosition::collect(ParamCollector& all) const {
  all.add(rows);
  all.add(columns);
}

}  // namespace pm::policy
