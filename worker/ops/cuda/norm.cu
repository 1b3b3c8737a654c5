// SPDX-License-Identifier: Apache-2.0
// Norm kernels: one block a row. The threads of a block hold its row in registers; rows of any type and address are
// read again from memory, by the threads that wrote them.
#include "worker/ops/cuda/device.cuh"
#include "worker/ops/cuda/norm.h"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 256, warps = threads / 32;  // of any_norm_kernel, at least of norm_kernel
constexpr int max_threads = 1024, pieces = 2;       // of a row that a thread of norm_kernel holds

/// The columns that a thread takes at once: 16 bytes of the narrowest of the types.
template <typename... Types>
inline constexpr int columns_at_once = ((sizeof(Types) == 2) || ...) ? per_load<__half> : per_load<float>;

/// N consecutive elements as they were loaded.
template <typename T, int N>
struct Loaded {
  uint4 words[N / per_load<T>];

  __device__ __forceinline__ void unpack_to(float (&values)[N]) const {
#pragma unroll
    for (int part = 0; part < N / per_load<T>; ++part) {
      float some[per_load<T>];
      unpack<T>(words[part], some);
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) values[part * per_load<T> + i] = some[i];
    }
  }
};

/// A row that is aligned to 16 bytes, as is each N-th column of it.
template <typename T>
struct TypedRow {
  T* row;

  template <int N>
  __device__ __forceinline__ void load(int64_t column, Loaded<T, N>& to) const {
#pragma unroll
    for (int part = 0; part < N / per_load<T>; ++part)
      to.words[part] = *reinterpret_cast<const uint4*>(row + column + part * per_load<T>);
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t column, const float (&values)[N]) const {
#pragma unroll
    for (int part = 0; part < N; part += per_load<T>) {
      float some[per_load<T>];
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) some[i] = values[part + i];
      store_16<T, true>(row + column + part, some, 1);
    }
  }
  __device__ __forceinline__ static float rounded(float value) { return widened(narrowed<T>(value)); }
};

/// A row of any type at any address, whose elements are read and written one by one. The first `count` of N are there.
struct AnyRow {
  void* data;
  Element type;
  int64_t first;  ///< element of the row

  template <int N>
  __device__ __forceinline__ void load(int64_t column, int count, float (&values)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = i < count ? element_at(data, type, first + column + i) : 0.f;
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t column, int count, const float (&values)[N]) const {
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) put_element(data, type, first + column + i, values[i]);
    }
  }
  __device__ __forceinline__ float rounded(float value) const {
    return type == Element::F32   ? value
           : type == Element::F16 ? widened(narrowed<__half>(value))
                                  : widened(narrowed<__nv_bfloat16>(value));
  }
};

/// Returns row `row` of an array, whose rows lie `stride` elements apart.
template <typename T>
__device__ __forceinline__ TypedRow<T> typed_row(const void* data, int64_t row, int64_t stride) {
  return {static_cast<T*>(const_cast<void*>(data)) + row * stride};
}

/// Returns the sum of all threads' values to all of them, in an order that depends on the number of threads only.
/// `scratch` holds a float per warp and is used once.
__device__ __forceinline__ float sum_of_threads(float value, float* scratch) {
  const int lane = static_cast<int>(threadIdx.x) % 32, count = static_cast<int>(blockDim.x) / 32;
  value = warp_sum(value);
  if (lane == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  return warp_sum(lane < count ? scratch[lane] : 0.f);
}

/// X: type of x; S: of residual and sum; Y: of y; P: of weight and bias. Without a residual X and S are one type.
/// Weights are loaded while the kernels ahead of this one end.
template <typename X, typename S, typename Y, typename P>
__global__ void __launch_bounds__(max_threads) norm_kernel(Norm p) {
  let_next_start();
  constexpr int at_once = columns_at_once<X, S, Y, P>;
  PM_SHARED(float, means, max_threads / 32);
  PM_SHARED(float, squares, max_threads / 32);
  const int64_t row = blockIdx.x;
  const auto x = typed_row<X>(p.x, row, p.x_stride);
  const auto residual = typed_row<S>(p.residual, row, p.width), sum = typed_row<S>(p.sum, row, p.width);
  const auto y = typed_row<Y>(p.y, row, p.width);
  const auto weight = typed_row<P>(p.weight, 0, 0), bias = typed_row<P>(p.bias, 0, 0);
  // Beyond the end of the row a thread loads its first piece again, and neither adds nor stores it: loads without a
  // branch between them are under way together. A thread with no piece loads nothing of x and of the residual: the sum,
  // which another thread stores, may replace them.
  int64_t columns[pieces];
  bool real[pieces];
  Loaded<P, at_once> weights[pieces];
  Loaded<X, at_once> given[pieces] = {};
  Loaded<S, at_once> residuals[pieces] = {};
  float held[pieces][at_once], total = 0, square = 0;
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    columns[piece] = (static_cast<int64_t>(piece) * blockDim.x + threadIdx.x) * at_once;
    real[piece] = columns[piece] < p.width;
    if (!real[piece]) columns[piece] = real[0] ? columns[0] : 0;
    if (p.weight) weight.load(columns[piece], weights[piece]);
  }
  wait_for_previous();
  if (real[0]) {
#pragma unroll
    for (int piece = 0; piece < pieces; ++piece) {
      x.load(columns[piece], given[piece]);
      if (p.residual) residual.load(columns[piece], residuals[piece]);
    }
  }
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    given[piece].unpack_to(held[piece]);
    if (p.residual) {
      float more[at_once];
      residuals[piece].unpack_to(more);
#pragma unroll
      for (int i = 0; i < at_once; ++i) held[piece][i] = sum.rounded(held[piece][i] + more[i]);
      if (real[piece]) sum.store(columns[piece], held[piece]);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) total += real[piece] ? held[piece][i] : 0.f;
  }
  const float mean = p.rms ? 0.f : sum_of_threads(total, means) / static_cast<float>(p.width);
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      held[piece][i] -= mean;
      square += real[piece] ? held[piece][i] * held[piece][i] : 0.f;
    }
  }
  const float scale = 1.f / sqrtf(sum_of_threads(square, squares) / static_cast<float>(p.width) + p.eps);
#pragma unroll
  for (int piece = 0; piece < pieces; ++piece) {
    float factors[at_once], added[at_once];
    if (p.weight) weights[piece].unpack_to(factors);
    if (p.bias) {  // not earlier: registers would not suffice
      Loaded<P, at_once> biases;
      bias.load(columns[piece], biases);
      biases.unpack_to(added);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      float& value = held[piece][i];
      value *= scale;
      if (p.weight) value *= p.weight_offset + factors[i];
      if (p.bias) value += added[i];
    }
    if (real[piece]) y.store(columns[piece], held[piece]);
  }
}

/// Rows of any types and addresses.
__global__ void __launch_bounds__(threads) any_norm_kernel(Norm p) {
  begin_after_previous();
  constexpr int at_once = per_load<float>;
  PM_SHARED(float, means, warps);
  PM_SHARED(float, squares, warps);
  const int64_t row = blockIdx.x;
  const auto of = [](const void* data, Element type, int64_t first) {
    return AnyRow{const_cast<void*>(data), type, first};
  };
  const AnyRow x = of(p.x, p.x_type, row * p.x_stride), residual = of(p.residual, p.sum_type, row * p.width),
               sum = of(p.sum, p.sum_type, row * p.width), y = of(p.y, p.y_type, row * p.width),
               weight = of(p.weight, p.parameters, 0), bias = of(p.bias, p.parameters, 0),
               normed = p.residual ? sum : x;
  const auto each_columns = [&](auto&& f) {
    for (int64_t column = threadIdx.x * at_once; column < p.width; column += threads * at_once)
      f(column, p.width - column >= at_once ? at_once : static_cast<int>(p.width - column));
  };
  float total = 0, square = 0;
  each_columns([&](int64_t column, int count) {
    float all[at_once], more[at_once];
    x.load(column, count, all);
    if (p.residual) {
      residual.load(column, count, more);
#pragma unroll
      for (int i = 0; i < at_once; ++i) all[i] = sum.rounded(all[i] + more[i]);
      sum.store(column, count, all);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (i < count) total += all[i];
    }
  });
  const float mean = p.rms ? 0.f : block_sum<warps>(total, means) / static_cast<float>(p.width);
  each_columns([&](int64_t column, int count) {
    float all[at_once];
    normed.load(column, count, all);
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (i < count) square += (all[i] - mean) * (all[i] - mean);
    }
  });
  const float scale = 1.f / sqrtf(block_sum<warps>(square, squares) / static_cast<float>(p.width) + p.eps);
  each_columns([&](int64_t column, int count) {
    float all[at_once], parameters[at_once];
    normed.load(column, count, all);
#pragma unroll
    for (int i = 0; i < at_once; ++i) all[i] = (all[i] - mean) * scale;
    if (p.weight) {
      weight.load(column, count, parameters);
#pragma unroll
      for (int i = 0; i < at_once; ++i) all[i] *= p.weight_offset + parameters[i];
    }
    if (p.bias) {
      bias.load(column, count, parameters);
#pragma unroll
      for (int i = 0; i < at_once; ++i) all[i] += parameters[i];
    }
    y.store(column, count, all);
  });
}

/// A kernel and the threads of its blocks.
struct Chosen {
  void (*kernel)(Norm);
  unsigned threads;
};

/// Calls f with a null pointer to T where `is_narrow`, else to float.
template <typename T, typename F>
void with_narrow(bool is_narrow, F&& f) {
  is_narrow ? f(static_cast<T*>(nullptr)) : f(static_cast<float*>(nullptr));
}

/// Returns the kernel for types of which each is fp32 or T, and sets `columns` to how many a thread takes at once;
/// nullptr where there is none.
template <typename T>
auto typed_kernel(const Norm& p, int64_t& columns) {
  constexpr Element narrow = element_of<T>();
  void (*kernel)(Norm) = nullptr;
  with_narrow<T>(p.x_type == narrow, [&](auto* x) {
    with_narrow<T>(p.sum_type == narrow, [&](auto* sum) {
      with_narrow<T>(p.y_type == narrow, [&](auto* y) {
        with_narrow<T>(p.parameters == narrow, [&](auto* parameters) {
          using X = std::remove_pointer_t<decltype(x)>;
          using S = std::remove_pointer_t<decltype(sum)>;
          using Y = std::remove_pointer_t<decltype(y)>;
          using P = std::remove_pointer_t<decltype(parameters)>;
          if constexpr (std::is_same_v<X, S> || std::is_same_v<X, float>) {
            kernel = &norm_kernel<X, S, Y, P>;
            columns = columns_at_once<X, S, Y, P>;
          }
        });
      });
    });
  });
  return kernel;
}

/// Returns the kernel that loads 16 bytes at a time, or that for elements where rows or types do not allow it.
Chosen kernel_for(const Norm& p) {
  constexpr Chosen any{&any_norm_kernel, threads};
  bool has_half = false, has_bf16 = false;
  for (const Element type : {p.x_type, p.sum_type, p.y_type, p.parameters}) {
    has_half |= type == Element::F16;
    has_bf16 |= type == Element::BF16;
  }
  if (has_half && has_bf16) return any;
  int64_t columns = 1;
  auto* kernel = has_half ? typed_kernel<__half>(p, columns) : typed_kernel<__nv_bfloat16>(p, columns);
  bool aligned = p.width % columns == 0 && p.x_stride * element_bytes(p.x_type) % 16 == 0;
  for (const void* data :
       {p.x, p.residual, static_cast<const void*>(p.sum), static_cast<const void*>(p.y), p.weight, p.bias})
    aligned = aligned && aligned_16(data);
  unsigned wanted = threads;
  while (wanted * pieces * columns < p.width) wanted *= 2;
  return kernel && aligned && wanted <= max_threads ? Chosen{kernel, wanted} : any;
}

}  // namespace

void norm(const Norm& given, Stream stream) {
  Norm p = given;
  require(!p.residual || p.sum, "norm", "a residual needs memory for the sum");
  for (const Element type : {p.x_type, p.sum_type, p.y_type, p.parameters})
    require(type != Element::I8, "norm", "rows, weight and bias are fp32, fp16 or bf16");
  if (p.rows == 0 || p.width == 0) return;
  if (!p.residual) p.sum_type = p.x_type;
  if (!p.weight && !p.bias) p.parameters = Element::F32;
  const auto [kernel, count] = kernel_for(p);
  PM_LAUNCH(kernel, static_cast<unsigned>(p.rows), count, 0, stream)(p);
  check_launch("norm");
}

}  // namespace pm::ops::cuda
