// SPDX-License-Identifier: Apache-2.0
// The CPU kernels for AVX-512 with its products of bf16 numbers.
#define PM_ISA avx512_bf16
#define PM_LANES 16
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/bf16_attention_kernel.h"
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/packed_product_kernel.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {
extern const Kernels kernels{.name = "avx512_bf16",
                             .fp32_rows = 24,
                             .half_rows = 24,
                             .code_rows = 16,
                             .gemv = gemv,
                             .widen = widen,
                             .attend = attend_bf16,
                             .pack_keys = pack_keys_bf16,
                             .attend_rows = attend_rows_bf16,
                             .silu_and_mul = silu_and_mul,
                             .few_products = &float_products<6>,
                             .fp32_products = &packed_products<Fp32Operands, 6>,
                             .bf16_products = &packed_products<Bf16Operands, 6>};
}
