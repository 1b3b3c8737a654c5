// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/feed_forward/image_projector.h"

#include <ATen/ATen.h>

namespace pm::layers {

ImageProjector::ImageProjector(const policy::ImageProjector& projector, std::array<int64_t, 2> patches, Loader& loader)
    : skipped_(projector.skipped),
      pooled_(projector.pooled),
      merged_(projector.merged),
      norm_merged_(projector.norm_merged),
      by_channel_(projector.by_channel),
      patches_(patches),
      norm_(projector.norm ? std::optional<Norm>(std::in_place, *projector.norm, loader) : std::nullopt),
      merging_(projector.merging ? std::optional<Linear>(std::in_place, *projector.merging, loader) : std::nullopt),
      first_(projector.first, loader),
      activation_(projector.activation) {
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
  return projected(norm_ ? (*norm_)(x) : x);
}

at::Tensor ImageProjector::of_squares(const at::Tensor& states) const {
  const at::Tensor before = norm_ && !norm_merged_ ? (*norm_)(states) : states,
                   rows = before.reshape({-1, merged_, states.size(1)}),
                   squares = (by_channel_ ? rows.transpose(1, 2) : rows).reshape({-1, merged_ * states.size(1)});
  const at::Tensor x = norm_ && norm_merged_ ? (*norm_)(squares) : squares;
  return projected(merging_ ? (*merging_)(x) : x);
}

at::Tensor ImageProjector::projected(const at::Tensor& x) const {
  const at::Tensor made = activate(activation_, first_(x));
  return last_ ? (*last_)(made) : made;
}

}  // namespace pm::layers
