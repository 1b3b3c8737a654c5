// SPDX-License-Identifier: Apache-2.0
// The GEMV kernels. The warps of a block share its outputs, and each takes a part of the inputs (split-K); the sums of
// the warps are added in their order. Products of 16-bit numbers use tensor cores, which take four rows of x at the
// price of one; others use fp32 arithmetic.
#include "worker/ops/cuda/linear/gemv.h"

#include <limits>

#include "worker/ops/cuda/linear/quantised.cuh"
#include "worker/ops/cuda/mma.cuh"

namespace pm::ops::cuda {

namespace {

constexpr int lanes = 32, min_warps = 4, max_warps = 16;
constexpr int resident_warps = 2 * max_warps;  // of a multiprocessor, which the launch bounds of gemv_mma_kernel allow
constexpr int inputs_of_a_turn = 128;          // of a warp of gemv_mma_kernel

/// Writes element `o` of row `r` of y.
__device__ __forceinline__ void put_result(const Gemv& p, int64_t r, int64_t o, float sum) {
  if (p.bias) sum += element_at(p.bias, p.bias_type, o);
  put_element(p.y, p.y_type, r * p.out + o, sum);
}

/// Loads 16 bytes that nothing else reads, without a place in the L1 cache, where x is. The compiler keeps it ahead of
/// wait_for_previous() where it stands there; it would move a load of constants (.nc) behind it.
template <typename T>
__device__ __forceinline__ uint4 stream_16(const T* from) {
#ifdef PM_EMULATED
  return *reinterpret_cast<const uint4*>(from);
#else
  uint4 words;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from));
  return words;
#endif
}

/// Loads two inputs of a row of x as T, in a word.
template <typename T, typename X>
__device__ __forceinline__ unsigned load_pair(const X* from) {
  if constexpr (sizeof(X) == 4) {
    const float2 pair = *reinterpret_cast<const float2*>(from);
    return packed<T>(pair.x, pair.y);
  } else {
    return *reinterpret_cast<const unsigned*>(from);
  }
}

/// Multiplies up to 4 x Sets rows of x with 8 x Tiles outputs on tensor cores. A lane loads 16 bytes of output lane /
/// 4, and eight 16-bit weights of it are its part of the left matrix of `mma`, as they lie in memory: words 0 and 2 in
/// row lane / 4, words 1 and 3 in row lane / 4 + 8. The right matrix has the inputs of words 0 and 2 of four rows of x
/// in columns 0 to 3, and those of words 1 and 3 in columns 4 to 7. So an element of y is the sum of two results,
/// (output, row) and (output + 8, row + 4), and the other half of the results is not used. Columns without a row of x
/// hold the last row again.
///
/// The weights of a warp's first turn are on their way to its registers while the kernels ahead of this one end. On an
/// H200 a prefetch of further turns to the L2 cache gained nothing or cost up to 9% of a step, and eight rows in the
/// columns of one product, which needs moves between registers, made one row 6% slower and eight 6% faster.
template <typename W, typename T, typename X, int Tiles, int Sets>
__global__ void __launch_bounds__(lanes* max_warps, 2) gemv_mma_kernel(Gemv p, Groups groups) {
  let_next_start();
  constexpr int per = per_load<W>, step = 4 * per, turn = inputs_of_a_turn, loads = turn / step, width = 8 * Tiles,
                held_rows = 4 * Sets;
  PM_SHARED(float, parts, max_warps * 2 * held_rows * width);
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes,
            warps = static_cast<int>(blockDim.x) / lanes, column = lane / 4;
  const int in = static_cast<int>(p.in), rows = static_cast<int>(p.rows), own = warp * turn + lane % 4 * per;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * width;
  const W* w[Tiles];
  [[maybe_unused]] const __nv_bfloat16* scales = static_cast<const __nv_bfloat16*>(p.scales) + first * p.scale_stride;
  [[maybe_unused]] int own_scales[Tiles];  // where those of an output begin
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
    const int64_t output = first + 8 * tile + column, held = output < p.out ? output : p.out - 1;
    w[tile] = static_cast<const W*>(p.w) + held * p.w_stride + own;
    own_scales[tile] = static_cast<int>((held - first) * p.scale_stride);
  }
  const X* x[Sets];
#pragma unroll
  for (int set = 0; set < Sets; ++set) {
    const int row = 4 * set + column % 4;
    x[set] = static_cast<const X*>(p.x) + (row < rows ? row : rows - 1) * p.x_stride + own + column / 4 * 2;
  }
  float sums[Sets][Tiles][4] = {};
  bool waited = false;
  const auto take = [&](int begin, auto whole) {
    constexpr bool all = decltype(whole)::value;  // every lane has inputs in every load
    uint4 words[loads][Tiles];
    [[maybe_unused]] __nv_bfloat16 scale[loads][Tiles];
#pragma unroll
    for (int l = 0; l < loads; ++l) {
      const int i = begin + l * step;
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
        const bool real = all || i < in;
        words[l][tile] = real ? stream_16(w[tile] + l * step) : uint4{0, 0, 0, 0};
      }
    }
    if (!waited) wait_for_previous(), waited = true;  // with weights on their way
    if constexpr (sizeof(W) == 1) {                   // after the wait: registers would not suffice before
#pragma unroll
      for (int l = 0; l < loads; ++l) {
        const int i = begin + l * step;
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile)
          scale[l][tile] = scales[own_scales[tile] + groups.of_eight(all || i < in ? i : 0)];
      }
    }
#pragma unroll
    for (int l = 0; l < loads; ++l) {
#pragma unroll(sizeof(W) == 1 && std::is_same_v<T, __half> ? 1 : 2)  // registers would not suffice
      for (int eight = 0; eight < per / 8; ++eight) {
        unsigned b[Sets][2];
#pragma unroll
        for (int set = 0; set < Sets; ++set) {
          const X* from = x[set] + l * step + 8 * eight;
          const bool real = all || begin + l * step < in;
          b[set][0] = real ? load_pair<T>(from) : 0;
          b[set][1] = real ? load_pair<T>(from + 4) : 0;
        }
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) {
          const uint4& loaded = words[l][tile];
          unsigned a[4] = {loaded.x, loaded.y, loaded.z, loaded.w};
          if constexpr (sizeof(W) == 1) {
            unsigned low[2], high[2];
            scaled_pairs<T>(eight == 0 ? loaded.x : loaded.z, scale[l][tile], low);
            scaled_pairs<T>(eight == 0 ? loaded.y : loaded.w, scale[l][tile], high);
            a[0] = low[0], a[1] = low[1], a[2] = high[0], a[3] = high[1];
          }
#pragma unroll
          for (int set = 0; set < Sets; ++set) multiply<T>(sums[set][tile], a, b[set][0], b[set][1]);
        }
      }
    }
#pragma unroll
    for (const W*& at : w) at += warps * turn;
#pragma unroll
    for (const X*& at : x) at += warps * turn;
  };
  int from = warp * turn;
  for (; from + turn <= in; from += warps * turn) take(from + lane % 4 * per, std::true_type{});
  if (from < in) take(from + lane % 4 * per, std::false_type{});
  if (!waited) wait_for_previous();

  // This lane has rows 2 (lane % 2) and the next of each set, of output lane / 4: of words 0 and 2 where lane % 4 < 2,
  // else of words 1 and 3.
  const int half = lane % 4 / 2;
#pragma unroll
  for (int set = 0; set < Sets; ++set) {
#pragma unroll
    for (int tile = 0; tile < Tiles; ++tile) {
      float* to = parts + ((2 * warp + half) * held_rows + 4 * set + 2 * (lane % 2)) * width + 8 * tile + column;
      to[0] = half == 0 ? sums[set][tile][0] : sums[set][tile][2];
      to[width] = half == 0 ? sums[set][tile][1] : sums[set][tile][3];
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += static_cast<int>(blockDim.x)) {
    const int r = i / width, o = i % width;
    if (first + o >= p.out) continue;
    float sum = 0;
    for (int part = 0; part < 2 * warps; ++part) sum += parts[(part * held_rows + r) * width + o];
    put_result(p, r, first + o, sum);
  }
}

constexpr int outputs = 4;  // of a block of gemv_kernel: x is loaded once for them

/// Loads four inputs of a row of x, rounded to C.
template <typename C, typename X, bool Aligned>
__device__ __forceinline__ void load_inputs(const X* from, int left, float (&values)[4]) {
  if constexpr (Aligned) {
    unpack<float>(load_16<float, true>(from, left), values);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) values[i] = i < left ? widened(narrowed<C>(widened(from[i]))) : 0.f;
  }
}

/// Multiplies `Rows` rows of x with four outputs in fp32, after x and, where they are quantised, weights are rounded to
/// C. Aligned: 16-byte loads of both, and x is fp32. Else there may be fewer rows: the last one is then loaded again.
template <typename W, typename C, typename X, int Rows, bool Aligned>
__global__ void __launch_bounds__(lanes* max_warps) gemv_kernel(Gemv p, Groups groups) {
  let_next_start();
  constexpr int per = per_load<W>;
  [[maybe_unused]] constexpr int words_of_four = 16 / per;
  PM_SHARED(float, parts, max_warps* Rows* outputs);
  const int in = static_cast<int>(p.in), rows = Aligned ? Rows : static_cast<int>(p.rows);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * outputs;
  const W* w = static_cast<const W*>(p.w) + first * p.w_stride;
  const X* x = static_cast<const X*>(p.x);
  const int here = static_cast<int>(p.out - first < outputs ? p.out - first : outputs);
  float sums[Rows][outputs] = {};
  const int first_input = static_cast<int>(threadIdx.x) * per;
  for (int i = first_input; i < in; i += static_cast<int>(blockDim.x) * per) {
    uint4 words[outputs];
    [[maybe_unused]] float scale[outputs];
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      words[o] = load_16<W, Aligned>(w + o * p.w_stride + i, o < here ? in - i : 0);
      if constexpr (sizeof(W) == 1) {
        const auto* scales = static_cast<const __nv_bfloat16*>(p.scales) + first * p.scale_stride;
        scale[o] = o < here ? widened(scales[o * p.scale_stride + groups.of_eight(i)]) : 0.f;
      }
    }
    if (i == first_input) wait_for_previous();  // with weights on their way
#pragma unroll
    for (int piece = 0; piece < per / 4; ++piece) {
      float weights[outputs][4];
#pragma unroll
      for (int o = 0; o < outputs; ++o) {
        const unsigned four[4] = {words[o].x, words[o].y, words[o].z, words[o].w};
        if constexpr (sizeof(W) == 1) {
          scaled_floats(four[piece], scale[o], weights[o]);
#pragma unroll
          for (float& weight : weights[o]) weight = widened(narrowed<C>(weight));
        } else {
#pragma unroll
          for (int word = 0; word < words_of_four; ++word)
            unpack_word<W>(four[piece * words_of_four + word], weights[o] + 4 / words_of_four * word);
        }
      }
#pragma unroll
      for (int r = 0; r < Rows; ++r) {
        float values[4];
        load_inputs<C, X, Aligned>(x + (r < rows ? r : rows - 1) * p.x_stride + i + 4 * piece, in - i - 4 * piece,
                                   values);
#pragma unroll
        for (int o = 0; o < outputs; ++o) {
#pragma unroll
          for (int j = 0; j < 4; ++j) sums[r][o] += values[j] * weights[o][j];
        }
      }
    }
  }
  if (first_input >= in) wait_for_previous();
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes,
            warps = static_cast<int>(blockDim.x) / lanes;
#pragma unroll
  for (int r = 0; r < Rows; ++r) {
#pragma unroll
    for (int o = 0; o < outputs; ++o) {
      const float sum = warp_sum(sums[r][o]);
      if (lane == 0) parts[(warp * Rows + r) * outputs + o] = sum;
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * outputs; i += static_cast<int>(blockDim.x)) {
    const int r = i / outputs, o = i % outputs;
    if (o >= here) continue;
    float sum = 0;
    for (int part = 0; part < warps; ++part) sum += parts[(part * Rows + r) * outputs + o];
    put_result(p, r, first + o, sum);
  }
}

/// Returns the threads of a block, where `blocks` share the outputs: the inputs of an output are split among as many
/// warps as keep all multiprocessors full, and no more than have something to load.
unsigned threads_of(const Gemv& p, int64_t blocks, int64_t inputs_of_a_load) {
  const int64_t wanted = int64_t{resident_warps} * p.multiprocessors / blocks,
                parts = (p.in + inputs_of_a_load - 1) / inputs_of_a_load;
  int warps = min_warps;
  while (2 * warps <= max_warps && 2 * warps <= wanted && 2 * warps <= parts) warps *= 2;
  return static_cast<unsigned>(warps * lanes);
}

template <typename W, typename T, typename X, int Tiles, int Sets>
void start_tiles(const Gemv& p, unsigned threads, Stream stream) {
  auto* kernel = &gemv_mma_kernel<W, T, X, Tiles, Sets>;
  PM_LAUNCH(kernel, static_cast<unsigned>((p.out + 8 * Tiles - 1) / (8 * Tiles)), threads, 0, stream)
  (p, groups_of(p.scale_group, p.in));
}

template <typename W, typename C, typename X, int Rows, bool Aligned>
void start_rows(const Gemv& p, Stream stream) {
  auto* kernel = &gemv_kernel<W, C, X, Rows, Aligned>;
  const int64_t blocks = (p.out + outputs - 1) / outputs;
  PM_LAUNCH(kernel, static_cast<unsigned>(blocks), threads_of(p, blocks, lanes * per_load<W>), 0, stream)
  (p, groups_of(p.scale_group, p.in));
}

/// Calls `start` with at most `most` rows at a time.
template <typename Start>
void in_passes(Gemv p, int64_t most, Start&& start) {
  const int64_t all = p.rows;
  for (int64_t done = 0; done < all; done += p.rows) {
    p.rows = std::min(most, all - done);
    start(static_cast<const Gemv&>(p));
    p.x = static_cast<const char*>(p.x) + p.rows * p.x_stride * element_bytes(p.x_type);
    p.y = static_cast<char*>(p.y) + p.rows * p.out * element_bytes(p.y_type);
  }
}

/// Products of 16-bit numbers. Two tiles share the loads of x where that leaves a block for each multiprocessor. Two
/// sets of rows leave no registers for two tiles; the split of the inputs is the same, so that bits are. Rows that
/// cannot be loaded 16 bytes at a time go through fp32 arithmetic, after the same rounding.
template <typename W, typename T, typename X>
void start_narrow(const Gemv& p, Stream stream) {
  if (gemv_uses_tensor_cores(p)) {
    const int64_t width = p.out >= 16 * int64_t{p.multiprocessors} ? 16 : 8;
    const unsigned threads = threads_of(p, (p.out + width - 1) / width, inputs_of_a_turn);
    in_passes(p, max_tensor_core_rows, [&](const Gemv& pass) {
      if (pass.rows > 4)
        start_tiles<W, T, X, 1, 2>(pass, threads, stream);
      else
        width == 16 ? start_tiles<W, T, X, 2, 1>(pass, threads, stream)
                    : start_tiles<W, T, X, 1, 1>(pass, threads, stream);
    });
  } else {
    in_passes(p, max_gemv_rows, [&](const Gemv& pass) {
      pass.rows == 1 ? start_rows<W, T, X, 1, false>(pass, stream) : start_rows<W, T, X, 4, false>(pass, stream);
    });
  }
}

/// Products of fp32 numbers.
template <typename W>
void start_wide(const Gemv& p, Stream stream) {
  const bool aligned = p.in % per_load<W> == 0 && p.w_stride % per_load<W> == 0 && aligned_16(p.w) &&
                       p.x_stride % per_load<float> == 0 && aligned_16(p.x);
  in_passes(p, max_gemv_rows, [&](const Gemv& pass) {
    if (!aligned)
      pass.rows == 1 ? start_rows<W, float, float, 1, false>(pass, stream)
                     : start_rows<W, float, float, 4, false>(pass, stream);
    else if (pass.rows == 1)
      start_rows<W, float, float, 1, true>(pass, stream);
    else if (pass.rows == 2)
      start_rows<W, float, float, 2, true>(pass, stream);
    else if (pass.rows == 3)
      start_rows<W, float, float, 3, true>(pass, stream);
    else
      start_rows<W, float, float, 4, true>(pass, stream);
  });
}

Element product_type(const Gemv& p) { return p.w_type == Element::I8 ? p.compute : p.w_type; }

}  // namespace

bool gemv_uses_tensor_cores(const Gemv& p) {
  const int64_t per = 16 / element_bytes(p.w_type), w_stride = p.w_stride > 0 ? p.w_stride : p.in;
  return product_type(p) != Element::F32 && p.in % per == 0 && w_stride % per == 0 && aligned_16(p.w) &&
         p.x_stride * element_bytes(p.x_type) % 16 == 0 && aligned_16(p.x);
}

void gemv(const Gemv& given, Stream stream) {
  constexpr const char* name = "gemv";
  Gemv p = given;
  const Element product = product_type(p);
  require(p.y_type != Element::I8 && p.bias_type != Element::I8 && product != Element::I8, name,
          "results, bias and products are fp32, fp16 or bf16");
  require(p.x_type == Element::F32 || p.x_type == product, name, "x is fp32 or of the type of the products");
  require(p.in < std::numeric_limits<int>::max() / 2, name, std::to_string(p.in) + " inputs are too many");
  if (p.rows == 0 || p.out == 0) return;  // an empty matrix has no address
  require(p.w_type != Element::I8 || (p.scales && p.scale_group > 0 && has_even_groups(p.scale_group, p.in)), name,
          "int8 weights need scales of groups of a multiple of 16 inputs, or of all; got groups of " +
              std::to_string(p.scale_group) + " of " + std::to_string(p.in) + " inputs");
  if (p.w_stride == 0) p.w_stride = p.in;
  if (p.scale_stride == 0 && p.scale_group > 0) p.scale_stride = (p.in + p.scale_group - 1) / p.scale_group;
  if (product == Element::F32) {
    p.w_type == Element::I8 ? start_wide<int8_t>(p, stream) : start_wide<float>(p, stream);
  } else {
    with_float(product, name, [&](auto* narrow) {
      using T = std::remove_pointer_t<decltype(narrow)>;
      if constexpr (sizeof(T) == 2) {
        if (p.w_type == Element::I8)
          p.x_type == Element::F32 ? start_narrow<int8_t, T, float>(p, stream) : start_narrow<int8_t, T, T>(p, stream);
        else
          p.x_type == Element::F32 ? start_narrow<T, T, float>(p, stream) : start_narrow<T, T, T>(p, stream);
      }
    });
  }
  check_launch(name);
}

}  // namespace pm::ops::cuda
