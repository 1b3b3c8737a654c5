// SPDX-License-Identifier: Apache-2.0
// The CPU kernels for AVX-512.
#define PM_ISA avx512
#define PM_LANES 16
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/packed_product_kernel.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {
extern const Kernels kernels{
    "avx512", 8, 24, 16, gemv, widen, attend, pack_keys, attend_rows, silu_and_mul, &packed_products<Fp32Operands, 6>};
}
