// SPDX-License-Identifier: Apache-2.0
// Device code that the kernels share: launches, 16-byte loads, sums over warps and blocks. It is compiled by nvcc, and
// by the host's compiler under tests/gpu/kernels/emulation, which defines PM_EMULATED and replaces CUDA's headers.
#pragma once
#ifndef PM_EMULATED
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#define PM_LAUNCH(kernel, grid, block, shared, stream) \
  pm::ops::cuda::make_launch(kernel, grid, block, static_cast<size_t>(shared), static_cast<cudaStream_t>(stream))
#define PM_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define PM_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "worker/ops/cuda/types.h"

namespace pm::ops::cuda {

inline constexpr unsigned all_lanes = 0xffffffffu;
inline constexpr int max_shared_bytes = 99 << 10;  // available to a block on every device from sm_80 on

// ---- host ----

/// Throws std::invalid_argument that names `what`.
inline void require(bool holds, const char* kernel, const std::string& what) {
  if (!holds) throw std::invalid_argument(std::string(kernel) + ": " + what);
}

#ifndef PM_EMULATED
/// Returns whether a device runs code of this library that waits for previous kernels: that for sm_90 and later. A
/// device runs the latest of the compiled architectures that is not later than its own.
inline bool runs_overlapping_code(int device) {
  constexpr int compiled[] = {__CUDA_ARCH_LIST__}, first = 900;
  int major = 0, minor = 0;
  if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess)
    return false;
  const int own = 100 * major + 10 * minor;
  return std::any_of(std::begin(compiled), std::end(compiled),
                     [own](int arch) { return arch >= first && arch <= own; });
}

/// Returns runs_overlapping_code() of the current device. Each device is queried once, since every launch calls this.
inline bool overlaps_launches() {
  enum class Answer : unsigned char { unknown, no, yes };
  static std::array<std::atomic<Answer>, 64> answers{};
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  if (device >= static_cast<int>(answers.size())) return runs_overlapping_code(device);
  std::atomic<Answer>& answer = answers[static_cast<size_t>(device)];
  if (answer == Answer::unknown) answer = runs_overlapping_code(device) ? Answer::yes : Answer::no;
  return answer == Answer::yes;
}

/// A launch whose thread blocks may become resident before the kernel ahead of it in the stream has ended (programmatic
/// dependent launch). CUDA graphs keep that. Errors are left for check_launch().
template <typename... Parameters>
struct Launch {
  void (*kernel)(Parameters...);
  dim3 grid, block;
  size_t shared;
  cudaStream_t stream;

  void operator()(Parameters... parameters) const {
    cudaLaunchAttribute overlap{};
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = grid, config.blockDim = block, config.dynamicSmemBytes = shared, config.stream = stream;
    config.attrs = &overlap, config.numAttrs = overlaps_launches() ? 1 : 0;
    cudaLaunchKernelEx(&config, kernel, parameters...);
  }
};
template <typename... Parameters>
Launch<Parameters...> make_launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, size_t shared,
                                  cudaStream_t stream) {
  return {kernel, grid, block, shared, stream};
}
#endif

/// Throws std::runtime_error with CUDA's error string when the last launch failed.
inline void check_launch([[maybe_unused]] const char* kernel) {
#ifndef PM_EMULATED
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw std::runtime_error(std::string(kernel) + " was not launched: " + cudaGetErrorString(error));
  }
#endif
}

/// Lets a kernel use more than 48 KiB of dynamic shared memory. Throws std::invalid_argument above the limit of a
/// block.
template <typename Kernel>
void allow_shared(const char* name, [[maybe_unused]] Kernel* kernel, int64_t bytes) {
  require(bytes <= max_shared_bytes, name,
          "needs " + std::to_string(bytes) + " bytes of shared memory, a block may have " +
              std::to_string(max_shared_bytes));
#ifndef PM_EMULATED
  if (bytes > (48 << 10))
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
#endif
}

/// Returns how many blocks of a kernel a multiprocessor of the current device runs at once, by the registers and the
/// static shared memory that they take. Throws std::runtime_error with CUDA's error string when the driver cannot say.
template <typename Kernel>
int resident_blocks([[maybe_unused]] const char* name, [[maybe_unused]] Kernel* kernel, [[maybe_unused]] int threads) {
#ifdef PM_EMULATED
  return emulation::resident_blocks;
#else
  int blocks = 0;
  if (const cudaError_t error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, 0);
      error != cudaSuccess) {
    throw std::runtime_error(std::string(name) + " has no occupancy: " + cudaGetErrorString(error));
  }
  return blocks;
#endif
}

constexpr int64_t up(int64_t value, int64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

/// Calls f with a null pointer to the C++ type of `type`.
template <typename F>
void with_float(Element type, const char* kernel, F&& f) {
  require(type != Element::I8, kernel, "takes fp32, fp16 and bf16 here, not int8");
  if (type == Element::F32)
    f(static_cast<float*>(nullptr));
  else if (type == Element::F16)
    f(static_cast<__half*>(nullptr));
  else
    f(static_cast<__nv_bfloat16*>(nullptr));
}

template <typename T>
constexpr Element element_of() {
  if constexpr (sizeof(T) == 4)
    return Element::F32;
  else if constexpr (sizeof(T) == 1)
    return Element::I8;
  else if constexpr (std::is_same_v<T, __half>)
    return Element::F16;
  else
    return Element::BF16;
}

// ---- device ----

/// Lets the thread blocks of the next kernel of the stream become resident where this kernel leaves room.
__device__ __forceinline__ void let_next_start() {
#if !defined(PM_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/// Waits until all kernels ahead of this one have ended and what they wrote can be read. Every thread calls it before
/// it reads or writes memory that another kernel of this library writes or reads. At least one thread block of each
/// launch calls it, without which a kernel could end before those ahead of it. Parameters of models, block tables and
/// lengths of sequences are written by no kernel of this library (copies and ATen's kernels write them, which overlap
/// with nothing), so they may be read before.
__device__ __forceinline__ void wait_for_previous() {
#if !defined(PM_EMULATED) && defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void begin_after_previous() {
  let_next_start();
  wait_for_previous();
}

__device__ __forceinline__ float widened(float value) { return value; }
__device__ __forceinline__ float widened(__half value) { return __half2float(value); }
__device__ __forceinline__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }
__device__ __forceinline__ float widened(int8_t value) { return static_cast<float>(value); }

template <typename T>
__device__ __forceinline__ T narrowed(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else if constexpr (std::is_same_v<T, __half>)
    return __float2half_rn(value);
  else
    return __float2bfloat16_rn(value);
}

/// Returns element i of an array whose type is known at run time only; used for data that is read once.
__device__ __forceinline__ float element_at(const void* data, Element type, int64_t i) {
  if (type == Element::F32) return static_cast<const float*>(data)[i];
  if (type == Element::F16) return __half2float(static_cast<const __half*>(data)[i]);
  return __bfloat162float(static_cast<const __nv_bfloat16*>(data)[i]);
}
__device__ __forceinline__ void put_element(void* data, Element type, int64_t i, float value) {
  if (type == Element::F32)
    static_cast<float*>(data)[i] = value;
  else if (type == Element::F16)
    static_cast<__half*>(data)[i] = __float2half_rn(value);
  else
    static_cast<__nv_bfloat16*>(data)[i] = __float2bfloat16_rn(value);
}

/// The number of elements of a 16-byte load.
template <typename T>
inline constexpr int per_load = 16 / static_cast<int>(sizeof(T));

/// Returns the bits of an element; 16-bit types are in the low half of the word.
template <typename T>
__device__ __forceinline__ unsigned bits_of(T value) {
  if constexpr (std::is_same_v<T, float>)
    return __float_as_uint(value);
  else if constexpr (std::is_same_v<T, __half>)
    return __half_as_ushort(value);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return __bfloat16_as_ushort(value);
  else
    return static_cast<unsigned char>(value);
}

/// Loads 16 bytes of T, at once where `Aligned`; else one by one, `count` elements, the others 0.
template <typename T, bool Aligned>
__device__ __forceinline__ uint4 load_16(const T* from, int64_t count) {
  if constexpr (Aligned) {
    return count > 0 ? *reinterpret_cast<const uint4*>(from) : uint4{0, 0, 0, 0};
  } else {
    constexpr int per_word = 4 / static_cast<int>(sizeof(T));
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < per_load<T>; ++i) {
      if (i < count) words[i / per_word] |= bits_of(from[i]) << (i % per_word * 8 * static_cast<int>(sizeof(T)));
    }
    return uint4{words[0], words[1], words[2], words[3]};
  }
}

/// Stores the first `count` of `values`, rounded to T; where `Aligned`, all of them at once.
template <typename T, bool Aligned>
__device__ __forceinline__ void store_16(T* to, const float (&values)[per_load<T>], int64_t count) {
  if constexpr (Aligned) {
    constexpr int per_word = 4 / static_cast<int>(sizeof(T));
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < per_load<T>; ++i)
      words[i / per_word] |= bits_of(narrowed<T>(values[i])) << (i % per_word * 8 * static_cast<int>(sizeof(T)));
    if (count > 0) *reinterpret_cast<uint4*>(to) = uint4{words[0], words[1], words[2], words[3]};
  } else {
#pragma unroll
    for (int i = 0; i < per_load<T>; ++i) {
      if (i < count) to[i] = narrowed<T>(values[i]);
    }
  }
}

inline bool aligned_16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

/// Converts the elements of a word to fp32; int8 is converted with its scale (quantised.cuh).
template <typename T>
__device__ __forceinline__ void unpack_word(unsigned word, float* values) {
  static_assert(sizeof(T) > 1);
  if constexpr (std::is_same_v<T, float>) {
    values[0] = __uint_as_float(word);
  } else if constexpr (std::is_same_v<T, __nv_bfloat16>) {  // a bf16 is the upper half of the fp32 of the same value
    values[0] = __uint_as_float(word << 16);
    values[1] = __uint_as_float(word & 0xffff0000u);
  } else {
    values[0] = __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu)));
    values[1] = __half2float(__ushort_as_half(static_cast<unsigned short>(word >> 16)));
  }
}

/// Converts the elements of 16 loaded bytes to fp32.
template <typename T>
__device__ __forceinline__ void unpack(const uint4& words, float (&values)[per_load<T>]) {
  const unsigned four[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) unpack_word<T>(four[i], values + per_load<T> / 4 * i);
}

/// Computes e^x by the fast instruction: the relative error is 2^-22 plus the rounding of x log2(e), which is
/// negligible for softmax weights of at most 1.
__device__ __forceinline__ float fast_exp(float x) {
#ifdef PM_EMULATED
  return std::exp(x);
#else
  return __expf(x);
#endif
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(all_lanes, value, bits);
  return value;
}
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int bits = 16; bits > 0; bits /= 2) value = fmaxf(value, __shfl_xor_sync(all_lanes, value, bits));
  return value;
}

/// Returns the sum of all threads' values to all of them, in an order that depends on the number of threads only.
/// `scratch` holds a float per warp. A barrier must separate this use of `scratch` from the uses before and after it.
template <int Warps>
__device__ __forceinline__ float block_sum(float value, float* scratch) {
  value = warp_sum(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
#pragma unroll
  for (int i = 0; i < Warps; ++i) value += scratch[i];
  return value;
}

}  // namespace pm::ops::cuda
