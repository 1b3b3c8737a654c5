// See linear.h. A few rows of x: our own kernels, which read the weights once as they are stored, on one thread. Many rows, and fp32 where
// the rank has several threads: ATen's matrix product.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>   // get_num_threads; its loops are ATen's own only where OpenMP is compiled in, which it is not here

#include "worker/ops/cpu/gemv.h"
#include "worker/ops/linear.h"

namespace pm::ops {

namespace {

constexpr int64_t tile_bytes = int64_t{1} << 20;    // of fp32: stays in the second-level cache

std::optional<GemvType> gemv_type(at::ScalarType type) {
  if (type == at::kFloat) return GemvType::F32;
  if (type == at::kHalf) return GemvType::F16;
  if (type == at::kBFloat16) return GemvType::BF16;
  return std::nullopt;
}

at::Tensor few_rows(const at::Tensor& given, const at::Tensor& weight, GemvType type) {
  const at::Tensor x = given.contiguous();
  const int64_t rows = x.size(0), out = weight.size(0), in = weight.size(1);
  at::Tensor y = at::empty({rows, out}, x.options());
  gemv(type, weight.const_data_ptr(), x.const_data_ptr<float>(), y.mutable_data_ptr<float>(), rows, in, out, 0, out);
  return y;
}

}  // namespace

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight) { return linear(x, weight, at::Tensor()); }

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  const auto type = gemv_type(weight.scalar_type());
  const bool ours = type && (*type != GemvType::F32 || at::get_num_threads() == 1);
  if (ours && weight.is_contiguous() && x.size(0) >= 1 && x.size(0) <= gemv_rows) {
    at::Tensor y = few_rows(x, weight, *type);
    return bias.defined() ? y.add_(bias) : y;
  }
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
