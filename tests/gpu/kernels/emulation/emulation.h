// SPDX-License-Identifier: Apache-2.0
// An emulation of CUDA's execution model on one host thread: every thread of a block is a fiber, and a random generator
// selects the next fiber, so that code which relies on an order that nothing guarantees gives different results under
// different seeds. It is included before every kernel source that is compiled for the host. Under ThreadSanitizer each
// fiber is a thread of its own that only barriers order: a missing barrier is reported as a data race.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <vector_functions.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>

#undef __global__
#undef __device__
#undef __host__
#undef __forceinline__
#undef __launch_bounds__
#undef __shared__
#undef __constant__
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define PM_EMULATED 1

namespace pm::emulation {

/// A CUDA thread as its code sees it.
struct Thread {
  uint3 index, block;
  dim3 block_size, grid;
  int lane;
};
extern Thread* running;

/// Seeds the order of fibers and blocks of the following launches.
void seed(uint64_t);
/// Runs `body` as every thread of every block, some blocks at a time. Throws std::runtime_error when threads deadlock,
/// wait at two barriers at once, or when one ends that others wait for.
void launch(dim3 grid, dim3 block, size_t dynamic_bytes, const std::function<void()>& body);

/// Called before every launch with a function that repeats the launch with the same arguments; may be empty.
extern thread_local std::function<void(std::function<void()> again)> on_launch;

void block_barrier(int line);
void warp_barrier(unsigned mask, int line);
/// All lanes of the mask contribute `bytes` (at most 64) and get the address of lane 0's data; lane i's data is 64 i
/// further. It is no memory barrier.
const char* exchange(unsigned mask, const void* mine, size_t bytes, int line);
/// Returns the block's shared memory for this place in the source, filled with 0xFF when the block starts; a second
/// call with another size is an error.
void* shared_memory(const char* file, int line, size_t bytes);
void* dynamic_shared_memory();
/// Defers a copy until its group is waited for. Until then the target holds 0xFF, so that reading too early is
/// detected.
void copy_later(void* to, const void* from, size_t bytes, bool real);
void commit_copies();
void wait_for_copies(int groups_left);

/// The blocks of any kernel that a multiprocessor runs at once, which the driver says on a GPU.
extern int resident_blocks;
/// Counts atomicAdd for each address from now on.
void count_atomics();
/// Returns the largest of these counts, and stops counting.
size_t most_atomics();
void note_atomic(const void* address);

template <typename T>
T lane_value(const char* all, int lane) {
  T value;
  std::memcpy(&value, all + 64 * lane, sizeof(T));
  return value;
}

template <typename Kernel>
struct Launch {
  Kernel* kernel;
  dim3 grid, block;
  size_t shared;
  template <typename... Args>
  void operator()(Args... args) const {
    const auto go = [=, *this] { launch(grid, block, shared, [&] { kernel(args...); }); };
    if (on_launch) on_launch(go);
    go();
  }
};
template <typename Kernel>
Launch<Kernel> make_launch(Kernel* kernel, dim3 grid, dim3 block, size_t shared, void* /*stream*/) {
  return {kernel, grid, block, shared};
}

}  // namespace pm::emulation

#define PM_LAUNCH(kernel, grid, block, shared, stream) \
  pm::emulation::make_launch(kernel, dim3(grid), dim3(block), static_cast<size_t>(shared), stream)
#define PM_SHARED(type, name, count) \
  type* const name = static_cast<type*>(pm::emulation::shared_memory(__FILE__, __LINE__, sizeof(type) * (count)))
#define PM_DYNAMIC_SHARED(name) \
  unsigned char* const name = static_cast<unsigned char*>(pm::emulation::dynamic_shared_memory())

#define threadIdx (pm::emulation::running->index)
#define blockIdx (pm::emulation::running->block)
#define blockDim (pm::emulation::running->block_size)
#define gridDim (pm::emulation::running->grid)

inline void __syncthreads(int line = __builtin_LINE()) { pm::emulation::block_barrier(line); }
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
  pm::emulation::warp_barrier(mask, line);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32, int line = __builtin_LINE()) {
  const int first = pm::emulation::running->lane / width * width;
  return pm::emulation::lane_value<T>(pm::emulation::exchange(mask, &value, sizeof value, line), first + from % width);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
  const int lane = pm::emulation::running->lane, from = lane ^ bits;
  return pm::emulation::lane_value<T>(pm::emulation::exchange(mask, &value, sizeof value, line),
                                      from / width <= lane / width ? from : lane);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, int line = __builtin_LINE()) {
  const int lane = pm::emulation::running->lane, from = lane - static_cast<int>(by);
  return pm::emulation::lane_value<T>(pm::emulation::exchange(mask, &value, sizeof value, line),
                                      from >= lane / width * width ? from : lane);
}
inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
  const char* all = pm::emulation::exchange(mask, &predicate, sizeof predicate, line);
  unsigned votes = 0;
  for (int lane = 0; lane < 32; ++lane) {
    if ((mask >> lane & 1) && pm::emulation::lane_value<int>(all, lane) != 0) votes |= 1u << lane;
  }
  return votes;
}

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline float __uint_as_float(unsigned bits) {
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
inline unsigned __float_as_uint(float value) {
  unsigned bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(static_cast<uint64_t>(a) * b >> 32); }
inline float rsqrtf(float value) { return 1.f / std::sqrt(value); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
/// The host's compiler, too, fuses no product with a sum here: it compiles for x86-64 without FMA.
inline float __fmul_rn(float a, float b) { return a * b; }
/// Byte i of the result is the byte of b:a that digit i of the selector names.
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
  unsigned result = 0;
  for (unsigned i = 0; i < 4; ++i)
    result |= static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7)) & 0xff) << (8 * i);
  return result;
}
/// There is none of 64 bits: in shared memory it is a loop of compare-and-swap, which waits long for busy addresses.
inline unsigned atomicAdd(unsigned* to, unsigned value) {
  pm::emulation::note_atomic(to);
  return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}
using std::max;
using std::min;
