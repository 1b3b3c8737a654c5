// SPDX-License-Identifier: Apache-2.0
// Products of integers by AVX-512 VNNI.
#define PM_ISA avx512_vnni
#define PM_LANES 16
#include "worker/ops/cpu/kernels/packed_product_kernel.h"
#include "worker/ops/cpu/kernels/split_product_kernel.h"

namespace pm::ops::PM_ISA {
extern const PackedProducts integer_products = packed_products<Int8Operands, 6>,
                            coded_products[] = {split_products<ByteCodes>, split_products<NibbleCodes>};
}
