// SPDX-License-Identifier: Apache-2.0
#include "worker/policy/spec/input/pixels.h"

namespace pm::policy {

std::array<int64_t, 2> Pixels::cells(int64_t height, int64_t width) const {
  std::array<int64_t, 2> cells{height, width};
  if (!convolution) return cells;
  for (int64_t& side : cells) {
    side = (side - 1) / convolution->stride + 1;
    side = side < 3 ? 0 : (side - 3) / 2 + 1;
  }
  return cells;
}

void Pixels::collect(ParamCollector& all) const {
  if (convolution) {
    all.add(convolution->kernel);
    const BatchNorm& norm = convolution->norm;
    for (const Param* param : {&norm.mean, &norm.variance, &norm.weight, &norm.bias}) all.add(*param);
  }
  all.add(projection);
  all.add(positions);
  all.add(position_projection);
}

}  // namespace pm::policy
