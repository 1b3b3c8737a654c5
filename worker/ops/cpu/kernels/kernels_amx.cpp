// SPDX-License-Identifier: Apache-2.0
// The kernels for AMX, beside those for AVX-512.
#define PM_ISA amx
#define PM_LANES 16
#include "worker/ops/cpu/kernels/tiles_attention_kernel.h"
#include "worker/ops/cpu/kernels/tiles_kernel.h"

namespace pm::ops::amx {
extern const Tiles tiles{pack_inputs, pack_bf16, pack_fp32, multiply, pack_keys, attend_rows};
}
