// SPDX-License-Identifier: Apache-2.0
// The CPU kernels for any CPU.
#define PM_ISA any
#define PM_LANES 4
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {
extern const Kernels kernels{.name = "any",
                             .fp32_rows = 16,
                             .half_rows = 8,
                             .code_rows = 16,
                             .gemv = gemv,
                             .widen = widen,
                             .attend = attend,
                             .pack_keys = pack_keys,
                             .attend_rows = attend_rows,
                             .silu_and_mul = silu_and_mul};
}
