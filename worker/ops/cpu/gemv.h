// y = x W^T for a few rows of x: bound by reading W, so that W is read once, in the type in which it is stored.
#pragma once
#include <cstdint>

namespace pm::ops {

/// Most rows of x that the kernels take; from there on a matrix product pays.
inline constexpr int64_t gemv_rows = 8;

/// What a weight's 16 or 32 bits mean.
enum class GemvType : uint8_t { F32, F16, BF16 };

/// x [rows, in] fp32, w [out, in]: y[r, o] for o in [first, last), y with `out` columns. 1 <= rows <= gemv_rows. Products and sums are fp32; a row's
/// sum is the same bits whatever `rows` is. One thread. Chosen once for the processor: AVX-512, AVX2 or what every x86-64 and any other machine has.
void gemv(GemvType type, const void* w, const float* x, float* y, int64_t rows, int64_t in, int64_t out, int64_t first, int64_t last);

}  // namespace pm::ops
