// See gemv_kernel.h.
#define PM_ISA avx512
#define PM_LANES 16
#include "worker/ops/cpu/gemv_kernel.h"
