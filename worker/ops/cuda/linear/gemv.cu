// SPDX-License-Identifier: Apache-2.0
// The GEMV kernels. The warps of a block share its outputs, and each takes a part of the inputs (split-K); the sums of
// the warps are added in their order. Products of 16-bit numbers use tensor cores, which take eight rows of x at the
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
constexpr int turns_ahead = 1;                 // that all blocks of one wave bring to the L2 cache as they start

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

/// Loads eight inputs of a row of x as T, two in a word.
template <typename T, typename X>
__device__ __forceinline__ uint4 load_eight(const X* from) {
  if constexpr (sizeof(X) == 4) {
    const float4 low = *reinterpret_cast<const float4*>(from), high = *reinterpret_cast<const float4*>(from + 4);
    return {packed<T>(low.x, low.y), packed<T>(low.z, low.w), packed<T>(high.x, high.y), packed<T>(high.z, high.w)};
  } else {
    return *reinterpret_cast<const uint4*>(from);
  }
}

/// Weights of one output in 16 loaded bytes: eight as T, two in a word. Of int8 numbers, which are 16, `half` says
/// which eight.
template <typename T, typename W>
__device__ __forceinline__ uint4 eight_weights(const uint4& loaded, [[maybe_unused]] int half,
                                               [[maybe_unused]] __nv_bfloat16 scale) {
  if constexpr (sizeof(W) == 1) {
    unsigned low[2], high[2];
    scaled_pairs<T>(half == 0 ? loaded.x : loaded.z, scale, low);
    scaled_pairs<T>(half == 0 ? loaded.y : loaded.w, scale, high);
    return {low[0], low[1], high[0], high[1]};
  } else {
    return loaded;
  }
}

/// Begins to bring the weights of a warp's turns to the L2 cache, a line for each lane: `count` turns from input `from`
/// on, `apart` inputs apart, of outputs first .. first + 8 x Tiles - 1.
template <typename W, int Tiles>
__device__ __forceinline__ void prefetch_turns(const Gemv& p, int64_t first, int from, int apart, int count) {
  constexpr int width = 8 * Tiles, line = 128 / static_cast<int>(sizeof(W));  // inputs of a line
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t output = first + lane % width;
  const int column = lane / width * line;
  if (output >= p.out || column >= inputs_of_a_turn) return;
  for (int turn = 0; turn < count && from + column < static_cast<int>(p.in); ++turn, from += apart)
    prefetch(static_cast<const W*>(p.w) + output * p.w_stride + from + column);
}

/// Multiplies up to 8 rows of x with 8 x Tiles outputs, on tensor cores: outputs are the rows of `mma`, eight of them
/// unused where Tiles is 1, and rows of x its columns. Lane 4 g + t loads 16 bytes of outputs g and g + 8 and of row g
/// of x, and the words of 16-bit numbers are operands as they lie in memory: which input of a step is which of a
/// product is the same for weights and x. Columns without a row of x hold the last row again.
///
/// The weights of a warp's first turn are on their way to its registers, and those of `ahead` further turns to the L2
/// cache, while the kernels ahead of this one end.
template <typename W, typename T, typename X, int Tiles>
__global__ void __launch_bounds__(lanes* max_warps, 2) gemv_mma_kernel(Gemv p, Groups groups, int ahead) {
  let_next_start();
  constexpr int per = per_load<W>, step = 4 * per, turn = inputs_of_a_turn, loads = turn / step, width = 8 * Tiles,
                held_rows = static_cast<int>(max_tensor_core_rows);
  PM_SHARED(float, parts, max_warps* held_rows* width);
  const int lane = static_cast<int>(threadIdx.x) % lanes, warp = static_cast<int>(threadIdx.x) / lanes,
            warps = static_cast<int>(blockDim.x) / lanes, g = lane / 4, t = lane % 4;
  const int in = static_cast<int>(p.in), rows = static_cast<int>(p.rows), first_turn = warp * turn,
            own = first_turn + t * per;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * width;
  const W* w[Tiles];
  [[maybe_unused]] const __nv_bfloat16* scales[Tiles];
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
    const int64_t output = first + 8 * tile + g, held = output < p.out ? output : p.out - 1;
    w[tile] = static_cast<const W*>(p.w) + held * p.w_stride + own;
    scales[tile] = static_cast<const __nv_bfloat16*>(p.scales) + held * p.scale_stride;
  }
  const X* x = static_cast<const X*>(p.x) + (g < rows ? g : rows - 1) * p.x_stride + own;
  float sums[2][4] = {};  // two, as a product waits for the one that it is added to
  const auto take = [&](int from, auto whole) {
    constexpr bool all = decltype(whole)::value;  // every lane has inputs in every load
    const int begin = from + t * per;
    uint4 words[loads][Tiles];
    [[maybe_unused]] __nv_bfloat16 scale[loads][Tiles];
#pragma unroll
    for (int l = 0; l < loads; ++l) {
      const bool real = all || begin + l * step < in;
#pragma unroll
      for (int tile = 0; tile < Tiles; ++tile) {
        words[l][tile] = real ? stream_16(w[tile] + l * step) : uint4{0, 0, 0, 0};
        if constexpr (sizeof(W) == 1) scale[l][tile] = scales[tile][groups.of_eight(real ? begin + l * step : 0)];
      }
    }
    if (from == first_turn) {
      prefetch_turns<W, Tiles>(p, first, first_turn + warps * turn, warps * turn, ahead);
      wait_for_previous();
    }
#pragma unroll
    for (int l = 0; l < loads; ++l) {
#pragma unroll
      for (int half = 0; half < per / 8; ++half) {
        const bool real = all || begin + l * step < in;
        const uint4 b = real ? load_eight<T>(x + l * step + 8 * half) : uint4{0, 0, 0, 0};
        uint4 of[2] = {};
#pragma unroll
        for (int tile = 0; tile < Tiles; ++tile) of[tile] = eight_weights<T, W>(words[l][tile], half, scale[l][tile]);
        const unsigned low[4] = {of[0].x, of[1].x, of[0].y, of[1].y}, high[4] = {of[0].z, of[1].z, of[0].w, of[1].w};
        multiply<T>(sums[0], low, b.x, b.y);
        multiply<T>(sums[1], high, b.z, b.w);
      }
    }
#pragma unroll
    for (const W*& at : w) at += warps * turn;
    x += warps * turn;
  };
  int from = first_turn;
  for (; from + turn <= in; from += warps * turn) take(from, std::true_type{});
  if (from < in) take(from, std::false_type{});
  if (first_turn >= in) wait_for_previous();

  // Lane 4 g + t has rows 2 t and 2 t + 1 of outputs g and g + 8.
#pragma unroll
  for (int tile = 0; tile < Tiles; ++tile) {
    float* to = parts + (warp * held_rows + 2 * t) * width + 8 * tile + g;
    to[0] = sums[0][2 * tile] + sums[1][2 * tile];
    to[width] = sums[0][2 * tile + 1] + sums[1][2 * tile + 1];
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows * width; i += static_cast<int>(blockDim.x)) {
    const int r = i / width, o = i % width;
    if (first + o >= p.out) continue;
    float sum = 0;
    for (int part = 0; part < warps; ++part) sum += parts[(part * held_rows + r) * width + o];
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

template <typename W, typename T, typename X, int Tiles>
void start_tiles(const Gemv& p, Stream stream) {
  auto* kernel = &gemv_mma_kernel<W, T, X, Tiles>;
  const int64_t blocks = (p.out + 8 * Tiles - 1) / (8 * Tiles);
  const unsigned threads = threads_of(p, blocks, inputs_of_a_turn);
  const bool one_wave = blocks * threads <= int64_t{resident_warps} * lanes * p.multiprocessors;
  PM_LAUNCH(kernel, static_cast<unsigned>(blocks), threads, 0, stream)
  (p, groups_of(p.scale_group, p.in), one_wave ? turns_ahead : 0);
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

/// Products of 16-bit numbers. Two tiles share the loads of x where that leaves a block for each multiprocessor. Rows
/// that cannot be loaded 16 bytes at a time go through fp32 arithmetic, after the same rounding.
template <typename W, typename T, typename X>
void start_narrow(const Gemv& p, Stream stream) {
  if (gemv_uses_tensor_cores(p)) {
    const bool wide = p.out >= 16 * int64_t{p.multiprocessors};
    in_passes(p, max_tensor_core_rows, [&](const Gemv& pass) {
      wide ? start_tiles<W, T, X, 2>(pass, stream) : start_tiles<W, T, X, 1>(pass, stream);
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
