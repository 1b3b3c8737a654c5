// See weight.h.
#include "worker/layers/weight.h"

#include <ATen/ATen.h>

#include "worker/ops/linear.h"

namespace pm::layers {

at::Tensor Weight::linear(const at::Tensor& x, const at::Tensor& bias) const {
  if (scales_.defined()) return ops::linear(x, ops::Int8Matrix{held_, scales_, group_}, bias);
  if (!gatherer_) return ops::linear(x, held_, bias);
  const int64_t out = shape_[0];
  at::Tensor y;
  gatherer_->tiles(number_, [&](int64_t first, const Weight& rows) {
    const int64_t count = rows.size(0);
    const at::Tensor part = rows.linear(x, bias.defined() ? bias.narrow(0, first, count) : bias);
    if (count == out) {
      y = part;
      return;
    }
    if (!y.defined()) y = at::empty({x.size(0), out}, part.options());
    y.narrow(1, first, count).copy_(part);
  });
  return y;
}

at::Tensor Weight::look_up(const at::Tensor& ids) const {
  if (scales_.defined()) return ops::dequantised({at::index_select(held_, 0, ids), at::index_select(scales_, 0, ids), group_});
  return gatherer_ ? gatherer_->look_up(number_, ids) : at::index_select(held_, 0, ids);
}

at::Tensor Weight::value() const {
  if (!gatherer_) return scales_.defined() ? ops::dequantised({held_, scales_, group_}) : held_;
  at::Tensor copy;
  gatherer_->tiles(number_, [&](int64_t first, const Weight& rows) {
    const at::Tensor part = rows.value();
    if (!copy.defined()) copy = at::empty(shape_, part.options());
    copy.narrow(0, first, part.size(0)).copy_(part);
  });
  return copy;
}

}  // namespace pm::layers
