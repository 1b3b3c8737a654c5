// SPDX-License-Identifier: Apache-2.0
// Selects the kernels that this CPU supports.
#include "worker/ops/cpu/kernels/kernels.h"

#ifdef __x86_64__
#include <asm/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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
namespace avx512_bf16 {
extern const Kernels kernels;
}
namespace avx512_vnni {
extern const PackedProducts integer_products, coded_products[2];
}
namespace amx {
extern const Tiles tiles;
}

namespace {

/// Returns whether the CPU has AMX and the kernel lets this process use it, which it must ask for once.
bool may_use_amx() {
  constexpr int tile_data = 18;  // number of the registers' state, XFEATURE_XTILEDATA
  return __builtin_cpu_supports("amx-tile") && __builtin_cpu_supports("amx-bf16") &&
         __builtin_cpu_supports("avx512bf16") && syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, tile_data) == 0;
}

/// Returns kernels for AVX-512 with what this CPU may have besides.
Kernels with_integer_products(Kernels kernels) {
  if (!__builtin_cpu_supports("avx512vnni")) return kernels;
  kernels.integer_products = &avx512_vnni::integer_products;
  for (int i = 0; i < 2; ++i) kernels.coded_products[i] = &avx512_vnni::coded_products[i];
  return kernels;
}

/// Returns the kernels for AVX-512 with the products of AMX.
Kernels with_tiles(Kernels kernels) {
  kernels.name = "amx";
  kernels.tiles = &amx::tiles;
  kernels.fp32_products = nullptr;  // ATen's are as fast on these CPUs, which are Intel's
  kernels.fp32_rows = 48;
  kernels.tiled_rows[0] = 9;
  kernels.tiled_rows[1] = 17;
  return kernels;
}

}  // namespace
#endif

const SupportedKernels& supported_kernels() {
  static const SupportedKernels supported = [] {
    SupportedKernels found{{}, 0};
#ifdef __x86_64__
    const bool narrow =
        __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
    const bool wide =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
    static const Kernels plain = with_integer_products(avx512::kernels),
                         bf16 = with_integer_products(avx512_bf16::kernels), tiled = with_tiles(plain);
    if (narrow && wide && may_use_amx()) found.list[found.count++] = &tiled;
    if (narrow && wide && __builtin_cpu_supports("avx512bf16")) found.list[found.count++] = &bf16;
    if (narrow && wide) found.list[found.count++] = &plain;
    if (narrow) found.list[found.count++] = &avx2::kernels;
#endif
    found.list[found.count++] = &any::kernels;
    return found;
  }();
  return supported;
}

}  // namespace pm::ops
