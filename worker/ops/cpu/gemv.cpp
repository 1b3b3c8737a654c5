// See gemv.h: which kernel this processor runs.
#include "worker/ops/cpu/gemv.h"

namespace pm::ops {

using Kernel = void (*)(int, const void*, const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t);

namespace any { void gemv(int, const void*, const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t); }
#ifdef __x86_64__
namespace avx2 { void gemv(int, const void*, const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t); }
namespace avx512 { void gemv(int, const void*, const float*, float*, int64_t, int64_t, int64_t, int64_t, int64_t); }
#endif

namespace {

Kernel choose() {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")) return avx512::gemv;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c")) return avx2::gemv;
#endif
  return any::gemv;
}

}  // namespace

void gemv(GemvType type, const void* w, const float* x, float* y, int64_t rows, int64_t in, int64_t out, int64_t first, int64_t last) {
  static const Kernel kernel = choose();
  kernel(static_cast<int>(type), w, x, y, rows, in, out, first, last);
}

}  // namespace pm::ops
