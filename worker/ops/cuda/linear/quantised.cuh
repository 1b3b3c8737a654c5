// SPDX-License-Identifier: Apache-2.0
// How quantised weights become 16-bit numbers: numbers times the scale of their group. gemv.cu and widen.cu share it,
// so that both multiply with the same weights. A further quantised type adds its scaled_pairs() here.
#pragma once
#include "worker/ops/cuda/linear/gemv.h"
#include "worker/ops/cuda/mma.cuh"

namespace pm::ops::cuda {

/// Finds the group of inputs that shares a scale.
struct Groups {
  unsigned inputs = 1;
  unsigned reciprocal = 0;  ///< 2^32 / (inputs / 8), rounded up; 0 where one group has all inputs
  /// For groups of any number of inputs.
  __device__ __forceinline__ int of(int input) const { return static_cast<int>(static_cast<unsigned>(input) / inputs); }
  /// Without a division. For groups of a multiple of 16 inputs, or of all. The quotient n / d of eights of inputs is
  /// exact while n d < 2^32, which max_grouped_inputs ensures.
  __device__ __forceinline__ int of_eight(int input) const {
    return static_cast<int>(__umulhi(static_cast<unsigned>(input) >> 3, reciprocal));
  }
};

/// Returns whether of_eight() may be used for a row of `in` inputs.
inline bool has_even_groups(int64_t scale_group, int64_t in) {
  return scale_group >= in || (scale_group > 0 && scale_group % 16 == 0 && in <= max_grouped_inputs);
}

inline Groups groups_of(int64_t scale_group, int64_t in) {
  if (scale_group >= in || scale_group <= 0) return {static_cast<unsigned>(std::max<int64_t>(1, in)), 0};
  const int64_t eights = scale_group / 8;
  return {static_cast<unsigned>(scale_group),
          eights > 1 ? static_cast<unsigned>(((int64_t{1} << 32) + eights - 1) / eights) : 0};
}

/// Four int8 numbers times their scale, exactly. A number plus 128 as the second byte of 2^15 makes 2^15 + 128 more
/// than the number, and the scale has so few digits that its product with that is exact; no conversion instruction is
/// needed.
__device__ __forceinline__ void scaled_floats(unsigned numbers, float scale, float (&values)[4]) {
  const unsigned raised = numbers ^ 0x80808080u;
  const float origin = -(32768.f + 128.f) * scale;
#pragma unroll
  for (unsigned b = 0; b < 4; ++b)
    values[b] = fmaf(__uint_as_float(__byte_perm(raised, 0x47000000u, 0x7404u | b << 4)), scale, origin);
}

/// The same rounded to T, two in a word.
template <typename T>
__device__ __forceinline__ void scaled_pairs(unsigned numbers, __nv_bfloat16 scale, unsigned (&pairs)[2]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    const __nv_bfloat162 factor{scale, scale};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      // 0x43 is the first byte of 128 and of 256 in bf16: with the low seven bits of a number behind it, it is 128 plus
      // these bits, from which 128 is taken away, or 256 where the number is negative.
      const unsigned spread = __byte_perm(numbers, 0x43434343u, half == 0 ? 0x4140u : 0x4342u),
                     raised = spread & 0xff7fff7fu, origin = spread & 0xff80ff80u;
      const __nv_bfloat162 exact = __hsub2(*reinterpret_cast<const __nv_bfloat162*>(&raised),
                                           *reinterpret_cast<const __nv_bfloat162*>(&origin)),
                           product = __hmul2(exact, factor);
      pairs[half] = *reinterpret_cast<const unsigned*>(&product);
    }
  } else {
    float values[4];
    scaled_floats(numbers, widened(scale), values);
    pairs[0] = packed<T>(values[0], values[1]);
    pairs[1] = packed<T>(values[2], values[3]);
  }
}

}  // namespace pm::ops::cuda
