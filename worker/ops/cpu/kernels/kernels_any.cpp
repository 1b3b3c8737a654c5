// SPDX-License-Identifier: Apache-2.0
// The CPU kernels for any CPU.
#define PM_ISA any
#define PM_LANES 4
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {
extern const Kernels kernels{"any", 16, 8, 16, gemv, widen, attend, pack_keys, attend_rows, silu_and_mul};
}
