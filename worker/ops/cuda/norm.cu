// SPDX-License-Identifier: Apache-2.0
// Norm kernels: one block a row. Each thread reads only the columns that it has written itself.
#include "worker/ops/cuda/device.cuh"
#include "worker/ops/cuda/norm.h"

namespace pm::ops::cuda {

namespace {

constexpr int threads = 256, warps = threads / 32;

/// The columns that a thread takes at once: 16 bytes of the narrowest of the types.
template <typename... Types>
inline constexpr int columns_at_once = ((sizeof(Types) == 2) || ...) ? per_load<__half> : per_load<float>;

/// A row that is aligned to 16 bytes, as is each N-th column of it.
template <typename T>
struct TypedRow {
  T* row;

  template <int N>
  __device__ __forceinline__ void load(int64_t column, int, float (&values)[N]) const {
#pragma unroll
    for (int part = 0; part < N; part += per_load<T>) {
      float some[per_load<T>];
      unpack<T>(*reinterpret_cast<const uint4*>(row + column + part), some);
#pragma unroll
      for (int i = 0; i < per_load<T>; ++i) values[part + i] = some[i];
    }
  }
  template <int N>
  __device__ __forceinline__ void store(int64_t column, int, const float (&values)[N]) const {
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

/// The arrays of a row. Those that are absent are not read.
template <typename X, typename S, typename Y, typename P>
struct Rows {
  X x;
  S residual, sum;
  Y y;
  P weight, bias;
};

/// Calls f(column, count) for the columns of a row that belong to this thread, N or fewer at a time; N at a time where
/// rows are `Whole` multiples of N.
template <int N, bool Whole, typename F>
__device__ __forceinline__ void each_columns(int64_t width, F&& f) {
  for (int64_t column = threadIdx.x * N; column < width; column += threads * N)
    f(column, Whole || width - column >= N ? N : static_cast<int>(width - column));
}

template <int N, bool Whole, typename X, typename S, typename Y, typename P>
__device__ __forceinline__ void norm_row(const Norm& p, const Rows<X, S, Y, P>& of, float* means, float* squares) {
  S normed = of.sum;
  if constexpr (std::is_same_v<X, S>) {
    if (!p.residual) normed = of.x;
  }
  float total = 0;
  if (p.residual) {
    each_columns<N, Whole>(p.width, [&](int64_t column, int count) {
      float all[N], more[N];
      of.x.load(column, count, all);
      of.residual.load(column, count, more);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        all[i] = of.sum.rounded(all[i] + more[i]);
        if (i < count) total += all[i];
      }
      of.sum.store(column, count, all);
    });
  } else if (!p.rms) {
    each_columns<N, Whole>(p.width, [&](int64_t column, int count) {
      float all[N];
      normed.load(column, count, all);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        if (i < count) total += all[i];
      }
    });
  }
  const float mean = p.rms ? 0.f : block_sum<warps>(total, means) / static_cast<float>(p.width);
  float square = 0;
  each_columns<N, Whole>(p.width, [&](int64_t column, int count) {
    float all[N];
    normed.load(column, count, all);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      if (i < count) square += (all[i] - mean) * (all[i] - mean);
    }
  });
  const float scale = 1.f / sqrtf(block_sum<warps>(square, squares) / static_cast<float>(p.width) + p.eps);
  each_columns<N, Whole>(p.width, [&](int64_t column, int count) {
    float all[N], parameters[N];
    normed.load(column, count, all);
#pragma unroll
    for (int i = 0; i < N; ++i) all[i] = (all[i] - mean) * scale;
    if (p.weight) {
      of.weight.load(column, count, parameters);
#pragma unroll
      for (int i = 0; i < N; ++i) all[i] *= p.weight_offset + parameters[i];
    }
    if (p.bias) {
      of.bias.load(column, count, parameters);
#pragma unroll
      for (int i = 0; i < N; ++i) all[i] += parameters[i];
    }
    of.y.store(column, count, all);
  });
}

/// Returns row `row` of an array, whose rows lie `stride` elements apart.
template <typename T>
__device__ __forceinline__ TypedRow<T> typed_row(const void* data, int64_t row, int64_t stride) {
  return {static_cast<T*>(const_cast<void*>(data)) + row * stride};
}

/// X: type of x; S: of residual and sum; Y: of y; P: of weight and bias. Without a residual X and S are one type.
template <typename X, typename S, typename Y, typename P>
__global__ void __launch_bounds__(threads) norm_kernel(Norm p) {
  begin_after_previous();
  PM_SHARED(float, means, warps);
  PM_SHARED(float, squares, warps);
  const int64_t row = blockIdx.x;
  const Rows<TypedRow<X>, TypedRow<S>, TypedRow<Y>, TypedRow<P>> rows{
      typed_row<X>(p.x, row, p.x_stride), typed_row<S>(p.residual, row, p.width), typed_row<S>(p.sum, row, p.width),
      typed_row<Y>(p.y, row, p.width),    typed_row<P>(p.weight, 0, 0),           typed_row<P>(p.bias, 0, 0)};
  norm_row<columns_at_once<X, S, Y, P>, true>(p, rows, means, squares);
}

__global__ void __launch_bounds__(threads) any_norm_kernel(Norm p) {
  begin_after_previous();
  PM_SHARED(float, means, warps);
  PM_SHARED(float, squares, warps);
  const int64_t row = blockIdx.x;
  const auto of = [](const void* data, Element type, int64_t first) {
    return AnyRow{const_cast<void*>(data), type, first};
  };
  const Rows<AnyRow, AnyRow, AnyRow, AnyRow> rows{
      of(p.x, p.x_type, row * p.x_stride),  of(p.residual, p.sum_type, row * p.width),
      of(p.sum, p.sum_type, row * p.width), of(p.y, p.y_type, row * p.width),
      of(p.weight, p.parameters, 0),        of(p.bias, p.parameters, 0)};
  norm_row<per_load<float>, false>(p, rows, means, squares);
}

using Kernel = void (*)(Norm);

/// Calls f with a null pointer to T where `is_narrow`, else to float.
template <typename T, typename F>
void with_narrow(bool is_narrow, F&& f) {
  is_narrow ? f(static_cast<T*>(nullptr)) : f(static_cast<float*>(nullptr));
}

/// Returns the kernel for types of which each is fp32 or T, and sets `columns` to how many a thread takes at once;
/// nullptr where there is none.
template <typename T>
Kernel typed_kernel(const Norm& p, int64_t& columns) {
  constexpr Element narrow = element_of<T>();
  Kernel kernel = nullptr;
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
Kernel kernel_for(const Norm& p) {
  bool has_half = false, has_bf16 = false;
  for (const Element type : {p.x_type, p.sum_type, p.y_type, p.parameters}) {
    has_half |= type == Element::F16;
    has_bf16 |= type == Element::BF16;
  }
  if (has_half && has_bf16) return &any_norm_kernel;
  int64_t columns = 1;
  const Kernel kernel = has_half ? typed_kernel<__half>(p, columns) : typed_kernel<__nv_bfloat16>(p, columns);
  const bool aligned = kernel && p.width % columns == 0 && p.x_stride * element_bytes(p.x_type) % 16 == 0 &&
                       aligned_16(p.x) && aligned_16(p.y) && aligned_16(p.residual) && aligned_16(p.sum) &&
                       aligned_16(p.weight) && aligned_16(p.bias);
  return aligned ? kernel : &any_norm_kernel;
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
  auto* kernel = kernel_for(p);
  PM_LAUNCH(kernel, static_cast<unsigned>(p.rows), threads, 0, stream)(p);
  check_launch("norm");
}

}  // namespace pm::ops::cuda
