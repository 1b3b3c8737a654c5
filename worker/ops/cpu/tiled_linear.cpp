// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/cpu/tiled_linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "worker/ops/cpu/kernels/tiles.h"
#include "worker/ops/cpu/scratch.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/cpu/types.h"

namespace pm::ops {

namespace {

// Packed weights, 512 KiB, and a panel of x stay in a second-level cache of 1 to 2 MiB.
constexpr int64_t inputs_at_once = 1024, weight_rows_at_once = 256, rows_at_once = 512;

int64_t steps(int64_t inputs) { return (inputs + tile_inputs - 1) / tile_inputs; }
int64_t panels(int64_t rows) { return (rows + panel - 1) / panel; }

int weight_parts(Element weights) { return weights == Element::BF16 ? 1 : 2; }

/// One product: packed rows of x, and the weights.
struct Product {
  const Tiles& tiles;
  const Gemv& weights;
  const uint16_t* x;
  int64_t rows;
  float* y;

  int w_parts() const { return weight_parts(weights.type); }
  int64_t x_panel() const { return steps(weights.in) * input_parts * panel_step; }

  /// Returns how many inputs are packed at once: whole groups of codes, and whole tiles.
  int64_t inputs_of_a_pass() const {
    const int64_t whole = std::lcm(tile_inputs, std::max<int64_t>(1, weights.group));
    return std::min(weights.in, std::max<int64_t>(1, inputs_at_once / whole) * whole);
  }

  /// Packs inputs [begin, begin + inputs) of `count` rows of the weights from `first` on. `wide` has room for one row
  /// of them.
  void pack(int64_t first, int64_t count, int64_t begin, int64_t inputs, float* wide, uint16_t* to) const {
    for (int64_t o = 0; o < count; ++o) {
      const Gemv part = part_of_row(weights, first + o, begin, inputs);
      uint16_t* target = to + o / panel * steps(inputs) * w_parts() * panel_step;
      if (weights.type == Element::BF16) {
        tiles.pack_bf16(static_cast<const uint16_t*>(part.w), inputs, o % panel, target);
        continue;
      }
      kernels().widen(part, wide);
      tiles.pack_fp32(wide, inputs, o % panel, target);
    }
  }

  /// Computes outputs [first, first + count).
  void compute(int64_t first, int64_t count) const {
    thread_local Scratch scratch;
    const int64_t in = weights.in, at_once = inputs_of_a_pass();
    const int64_t sums = panels(rows) * panels(count) * panel * panel;
    const int64_t packed = panels(count) * steps(at_once) * w_parts() * panel_step;
    auto* memory = static_cast<float*>(scratch.get(4 * (sums + at_once) + 2 * packed));
    auto* w = reinterpret_cast<uint16_t*>(memory + sums);
    float* wide = memory + sums + packed / 2;
    for (int64_t begin = 0; begin < in; begin += at_once) {
      const int64_t inputs = std::min(at_once, in - begin);
      pack(first, count, begin, inputs, wide, w);
      tiles.multiply({.x = x + begin / tile_inputs * input_parts * panel_step,
                      .w = w,
                      .x_panel = x_panel(),
                      .rows = rows,
                      .outputs = count,
                      .steps = steps(inputs),
                      .w_parts = w_parts(),
                      .sums = memory,
                      .begins = begin == 0,
                      .ends = begin + inputs == in,
                      .y = y + first,
                      .stride = weights.out});
    }
  }
};

}  // namespace

at::Tensor tiled_linear(const at::Tensor& given, const Gemv& weights, const at::Tensor& bias) {
  const at::Tensor x = given.contiguous();
  const Tiles& tiles = *kernels().tiles;
  const int64_t all = x.size(0), in = weights.in, out = weights.out;
  at::Tensor y = at::empty({all, out}, x.options());
  if (out == 0) return y;  // a rank may have no rows of a matrix
  const int64_t most = std::min(all, rows_at_once);
  const int64_t panel_size = steps(in) * input_parts * panel_step;
  const at::Tensor packed = at::empty({panels(most) * panel_size}, x.options().dtype(at::kShort));
  auto* to = reinterpret_cast<uint16_t*>(packed.mutable_data_ptr<int16_t>());
  ThreadPool& threads = thread_pool();
  // as many parts of equal size as the threads share out evenly
  const int64_t most_outputs = weight_rows_at_once / weight_parts(weights.type);
  const int64_t per_thread =
      std::max<int64_t>(1, (out + threads.threads() * most_outputs - 1) / (threads.threads() * most_outputs));
  const int64_t size = panels((out + threads.threads() * per_thread - 1) / (threads.threads() * per_thread)) * panel;
  for (int64_t begin = 0; begin < all; begin += most) {
    const int64_t rows = std::min(most, all - begin);
    const float* from = x.const_data_ptr<float>() + begin * in;
    threads.parallel_for(2 * panels(rows), [&](int64_t i) {
      const int64_t count = std::clamp<int64_t>(rows - i * tile_size, 0, tile_size);
      tiles.pack_inputs(from + i * tile_size * in, count, in, in, i % 2, to + i / 2 * panel_size);
    });
    const Product product{tiles, weights, to, rows, y.mutable_data_ptr<float>() + begin * out};
    threads.parallel_for((out + size - 1) / size,
                         [&](int64_t i) { product.compute(i * size, std::min(size, out - i * size)); });
  }
  if (bias.defined()) y.add_(bias);
  return y;
}

}  // namespace pm::ops
