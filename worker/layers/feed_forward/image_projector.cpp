// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/feed_forward/image_projector.h"

#include <ATen/ATen.h>

namespace pm::layers {

ImageProjector::ImageProjector(const policy::ImageProjector& projector, std::array<int64_t, 2> patches, Loader& loader)
    : skipped_(projector.skipped),
      pooled_(projector.pooled),
      patches_(patches),
      first_(projector.first, loader),
      activation_(projector.activation) {
  if (projector.norm) norm_.emplace(*projector.norm, loader);
  if (projector.last) last_.emplace(*projector.last, loader);
}

at::Tensor ImageProjector::operator()(const at::Tensor& states, int64_t length) const {
  const int64_t width = states.size(1);
  at::Tensor x = states.reshape({-1, length, width}).narrow(1, skipped_, length - skipped_);
  if (pooled_ > 1) {
    const int64_t down = patches_[0] / pooled_, across = patches_[1] / pooled_;
    x = x.reshape({-1, down, pooled_, across, pooled_, width}).mean({2, 4});
  }
  x = x.reshape({-1, width});
  if (norm_) x = (*norm_)(x);
  x = activate(activation_, first_(x));
  return last_ ? (*last_)(x) : x;
}

}  // namespace pm::layers
