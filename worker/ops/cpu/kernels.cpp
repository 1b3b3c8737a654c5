// SPDX-License-Identifier: Apache-2.0
// Selects the kernels that this CPU supports.
#include "worker/ops/cpu/kernels.h"

namespace pm::ops {

namespace any {
extern const Kernels kernels;
}
#ifdef __x86_64__
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
#endif

const SupportedKernels& supported_kernels() {
  static const SupportedKernels supported = [] {
    SupportedKernels found{{}, 0};
#ifdef __x86_64__
    const bool narrow =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool wide =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    if (narrow && wide) found.list[found.count++] = &avx512::kernels;
    if (narrow) found.list[found.count++] = &avx2::kernels;
#endif
    found.list[found.count++] = &any::kernels;
    return found;
  }();
  return supported;
}

}  // namespace pm::ops
