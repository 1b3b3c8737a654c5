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
extern const Kernels kernels{"avx512_bf16",
                             8,
                             24,
                             16,
                             gemv,
                             widen,
                             attend_bf16,
                             pack_keys_bf16,
                             attend_rows_bf16,
                             silu_and_mul,
                             &packed_products<Fp32Operands, 6>,
                             &packed_products<Bf16Operands, 6>};
}
