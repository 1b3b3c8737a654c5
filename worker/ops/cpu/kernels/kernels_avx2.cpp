// SPDX-License-Identifier: Apache-2.0
// The CPU kernels for AVX2.
#define PM_ISA avx2
#define PM_LANES 8
#include "worker/ops/cpu/kernels/attention_kernel.h"
#include "worker/ops/cpu/kernels/gemv_kernel.h"
#include "worker/ops/cpu/kernels/group_product_kernel.h"
#include "worker/ops/cpu/kernels/integer_product_kernel.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/kernels/outer_product_kernel.h"
#include "worker/ops/cpu/kernels/packed_product_kernel.h"
#include "worker/ops/cpu/kernels/prefill_kernel.h"

namespace pm::ops::PM_ISA {
extern const Kernels kernels{.name = "avx2",
                             .fp32_rows = 8,
                             .half_rows = 12,
                             .code_rows = 8,
                             .gemv = gemv,
                             .widen = widen,
                             .attend = attend,
                             .pack_keys = pack_keys,
                             .attend_rows = attend_rows,
                             .silu_and_mul = silu_and_mul,
                             .few_products = &float_products<3>,
                             .fp32_products = &number_products,
                             .integer_products = &integer_products,
                             .coded_products = {&group_products, &group_products}};
}
