// SPDX-License-Identifier: Apache-2.0
// Linear layers of many rows on a CPU's matrix unit.
#pragma once
#include <ATen/core/Tensor.h>

#include "worker/ops/cpu/kernels/kernels.h"

namespace pm::ops {

/// x [rows, in] fp32 times the transposed weights, plus `bias` [out] of any float type unless it is undefined; ->
/// [rows, out] fp32. `weights` describes them: type (not F32), w, in, out, and scales of codes. The CPU has tiles
/// (Kernels::tiles). The bits of a row of the result do not depend on the other rows.
at::Tensor tiled_linear(const at::Tensor& x, const Gemv& weights, const at::Tensor& bias);

}  // namespace pm::ops
