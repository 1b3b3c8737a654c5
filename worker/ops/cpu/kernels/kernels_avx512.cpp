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
extern const Kernels kernels{.name = "avx512",
                             .fp32_rows = 24,
                             .half_rows = 24,
                             .code_rows = 16,
                             .gemv = gemv,
                             .widen = widen,
                             .attend = attend,
                             .pack_keys = pack_keys,
                             .attend_rows = attend_rows,
                             .silu_and_mul = silu_and_mul,
                             .few_products = &float_products<6>,
                             .fp32_products = &packed_products<Fp32Operands, 6>};
}
