// See gemv_kernel.h.
#define PM_ISA avx2
#define PM_LANES 8
#include "worker/ops/cpu/gemv_kernel.h"
