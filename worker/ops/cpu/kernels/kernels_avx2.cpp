// SPDX-License-Identifier: Apache-2.0
// The CPU kernels for AVX2.
#define PM_ISA avx2
#define PM_LANES 8
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {
extern const Kernels kernels{"avx2", 32, 64, 32, gemv, widen, attend, pack_keys, attend_rows, silu_and_mul};
}
