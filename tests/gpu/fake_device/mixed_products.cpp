// SPDX-License-Identifier: Apache-2.0
// Products of 16-bit matrices into fp32 (aten::mm.dtype), which ATen has for CUDA only. Operations of the fake device
// run on the CPU, so it gets them here. What CUDA refuses is refused.
#include <ATen/ATen.h>
#include <torch/library.h>

namespace pm::fake_device {

namespace {

at::Tensor& multiply_into(const at::Tensor& a, const at::Tensor& b, at::ScalarType type, at::Tensor& out) {
  TORCH_CHECK(a.scalar_type() == b.scalar_type(), "mm got matrices of ", a.scalar_type(), " and ", b.scalar_type());
  TORCH_CHECK(out.scalar_type() == type, "mm into ", type, " got a result of ", out.scalar_type());
  TORCH_CHECK(type == a.scalar_type() ||
                  (type == at::kFloat && (a.scalar_type() == at::kHalf || a.scalar_type() == at::kBFloat16)),
              "mm of ", a.scalar_type(), " into ", type);
  return at::mm_out(out, a.to(type), b.to(type));
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b, at::ScalarType type) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.options().dtype(type));
  return multiply_into(a, b, type, out);
}

TORCH_LIBRARY_IMPL(aten, CPU, library) {
  library.impl("mm.dtype", &multiply);
  library.impl("mm.dtype_out", &multiply_into);
}

}  // namespace

}  // namespace pm::fake_device
