// SPDX-License-Identifier: Apache-2.0
// Products of integers of eight bits by AVX-512 VNNI.
#define PM_ISA avx512_vnni
#define PM_LANES 16
#include "worker/ops/cpu/kernels/packed_product_kernel.h"

namespace pm::ops::PM_ISA {
extern const PackedProducts integer_products = packed_products<Int8Operands, 6>;
}
