// SPDX-License-Identifier: Apache-2.0
// Tensor core instructions and asynchronous copies to shared memory (sm_80 and later). For the emulation each has a
// reference implementation that moves the same elements between the same lanes (PTX ISA, "Matrix fragments for
// mma.m16n8k16", "ldmatrix", "cp.async").
#pragma once
#include "worker/ops/cuda/device.cuh"

namespace pm::ops::cuda {

#ifndef PM_EMULATED

/// Loads four 8x8 matrices of 16-bit elements: lane l gives the address of row l % 8 of matrix l / 8, and gets elements
/// 2 (l % 4) and the next of row l / 4 of each matrix.
__device__ __forceinline__ void load_matrices(unsigned (&r)[4], const void* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
/// Loads the transposed matrices: elements l / 4 of rows 2 (l % 4) and the next.
__device__ __forceinline__ void load_transposed(unsigned (&r)[4], const void* row) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
/// c [16, 8] += a [16, 16] b [16, 8], sums in fp32.
template <typename T>
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  if constexpr (std::is_same_v<T, __half>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, "
        "%2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}
/// Starts a 16-byte copy to shared memory; without `real` it writes zeros and reads nothing.
__device__ __forceinline__ void copy_16(void* shared, const void* global, bool real) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(real ? 16 : 0) : "memory");
}
/// Commits the copies that this thread has started since the last commit as a group.
__device__ __forceinline__ void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
/// Waits until at most the newest `Left` groups of this thread are in flight.
template <int Left>
__device__ __forceinline__ void wait_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Left) : "memory");
}

#else

namespace reference {

inline unsigned short half_word(const void* row, int column) {
  unsigned short bits;
  std::memcpy(&bits, static_cast<const char*>(row) + 2 * column, 2);
  return bits;
}
template <typename T>
float value(unsigned word, int upper) {
  const auto bits = static_cast<unsigned short>(upper ? word >> 16 : word & 0xffffu);
  if constexpr (std::is_same_v<T, __half>)
    return __half2float(__ushort_as_half(bits));
  else
    return __bfloat162float(__ushort_as_bfloat16(bits));
}

}  // namespace reference

inline void load_matrices(unsigned (&r)[4], const void* row, int line = __builtin_LINE()) {
  const char* all = emulation::exchange(all_lanes, &row, sizeof row, line);
  const int lane = emulation::running->lane;
  for (int i = 0; i < 4; ++i) {
    const void* from = emulation::lane_value<const void*>(all, 8 * i + lane / 4);
    r[i] = reference::half_word(from, 2 * (lane % 4)) |
           static_cast<unsigned>(reference::half_word(from, 2 * (lane % 4) + 1)) << 16;
  }
}
inline void load_transposed(unsigned (&r)[4], const void* row, int line = __builtin_LINE()) {
  const char* all = emulation::exchange(all_lanes, &row, sizeof row, line);
  const int lane = emulation::running->lane;
  for (int i = 0; i < 4; ++i) {
    const void *low = emulation::lane_value<const void*>(all, 8 * i + 2 * (lane % 4)),
               *high = emulation::lane_value<const void*>(all, 8 * i + 2 * (lane % 4) + 1);
    r[i] = reference::half_word(low, lane / 4) | static_cast<unsigned>(reference::half_word(high, lane / 4)) << 16;
  }
}
template <typename T>
void multiply(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1, int line = __builtin_LINE()) {
  struct {
    unsigned a[4], b[2];
  } mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
  const char* all = emulation::exchange(all_lanes, &mine, sizeof mine, line);
  const int lane = emulation::running->lane;
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4 + 8 * (i / 2), column = 2 * (lane % 4) + i % 2;
    double sum = c[i];
    for (int k = 0; k < 16; ++k) {
      const auto of_a = emulation::lane_value<decltype(mine)>(all, 4 * (row % 8) + k % 8 / 2),
                 of_b = emulation::lane_value<decltype(mine)>(all, 4 * column + k % 8 / 2);
      sum += static_cast<double>(reference::value<T>(of_a.a[row / 8 + 2 * (k / 8)], k % 2)) *
             static_cast<double>(reference::value<T>(of_b.b[k / 8], k % 2));
    }
    c[i] = static_cast<float>(sum);
  }
}
inline void copy_16(void* shared, const void* global, bool real) { emulation::copy_later(shared, global, 16, real); }
inline void commit_copies() { emulation::commit_copies(); }
template <int Left>
void wait_copies() {
  emulation::wait_for_copies(Left);
}

#endif

/// Packs two adjacent numbers of a row, the first in the lower half, by one instruction.
template <typename T>
__device__ __forceinline__ unsigned packed(float first, float second) {
#ifndef PM_EMULATED
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    unsigned word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
  } else if constexpr (std::is_same_v<T, __half>) {
    unsigned word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(second), "f"(first));
    return word;
  }
#endif
  return bits_of(narrowed<T>(first)) | bits_of(narrowed<T>(second)) << 16;
}
/// Returns the two numbers of a word.
template <typename T>
__device__ __forceinline__ void unpacked(unsigned word, float (&values)[2]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    values[0] = __uint_as_float(word << 16);
    values[1] = __uint_as_float(word & 0xffff0000u);
  } else {
    values[0] = __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu)));
    values[1] = __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
  }
}

}  // namespace pm::ops::cuda
