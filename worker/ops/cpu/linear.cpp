// See linear.h.
#include <ATen/ATen.h>

#include "worker/ops/linear.h"

namespace pm::ops {

namespace {
constexpr int64_t tile_bytes = int64_t{1} << 20;  // of fp32: stays in the second-level cache
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) { return linear(x, weight, at::Tensor()); }

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  if (weight.scalar_type() == at::kFloat) {
    return bias.defined() ? at::addmm(bias.to(at::kFloat), x, weight.t()) : at::mm(x, weight.t());
  }
  const int64_t out = weight.size(0), in = weight.size(1);
  at::Tensor y = at::empty({x.size(0), out}, x.options());
  const int64_t rows = std::max<int64_t>(16, tile_bytes / std::max<int64_t>(1, 4 * in));
  for (int64_t first = 0; first < out; first += rows) {
    const int64_t count = std::min(rows, out - first);
    at::Tensor target = y.narrow(1, first, count);
    at::Tensor tile = weight.narrow(0, first, count).to(at::kFloat);
    target.copy_(at::mm(x, tile.t()));
  }
  if (bias.defined()) y.add_(bias);
  return y;
}

}  // namespace pm::ops
