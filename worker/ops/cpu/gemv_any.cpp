// See gemv_kernel.h.
#define PM_ISA any
#define PM_LANES 4
#include "worker/ops/cpu/gemv_kernel.h"
