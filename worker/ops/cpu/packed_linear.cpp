// SPDX-License-Identifier: Apache-2.0
#include "worker/ops/cpu/packed_linear.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>
#include <vector>

#include "worker/ops/cpu/output_chunks.h"
#include "worker/ops/cpu/scratch.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/cpu/types.h"

namespace pm::ops {

namespace {

constexpr int64_t block_rows = 256;   // about; their inputs of a pass, 512 KiB, stay in the second-level cache
constexpr int64_t most_outputs = 64;  // of a chunk; their weights of a pass are 128 KiB

/// Returns the bytes of a row of weights as they are stored.
int64_t row_bytes(const Gemv& weights) {
  if (weights.group > 0) return weights.w_stride;
  return weights.in * (weights.type == Element::F32 ? 4 : 2);
}

/// One product: packed rows of x, and the weights.
struct Product {
  const PackedProducts& products;
  const Gemv& weights;
  const std::byte* x;
  int64_t x_inputs, rows;
  float* y;

  bool pairs() const { return products.operands == OperandType::Bf16; }
  bool integers() const { return products.operands == OperandType::Integers; }

  /// Widens inputs [begin, begin + inputs) of `count` rows of the weights from `first` on to rows of `stride` numbers.
  void widen(int64_t first, int64_t count, int64_t begin, int64_t inputs, int64_t stride, std::byte* to) const {
    thread_local Scratch row;
    for (int64_t o = 0; o < count; ++o, to += stride * products.bytes) {
      const Gemv part = part_of_row(weights, first + o, begin, inputs);
      if (!pairs()) {
        kernels().widen(part, reinterpret_cast<float*>(to));
        continue;
      }
      auto* wide = static_cast<float*>(row.get(4 * inputs));
      kernels().widen(part, wide);
      products.pack(wide, 1, inputs, inputs, to, nullptr);
    }
  }

  /// Sets the part's weights where they are read as they are stored, and returns whether they are.
  bool describe_stored(int64_t first, PackedProduct& part) const {
    if (integers()) {
      part.w_stride = weights.w_stride;
    } else if (weights.group == 0) {
      if (weights.type != (pairs() ? Element::BF16 : Element::F32)) return false;
      part.w_stride = weights.in;
    } else {
      if (!pairs() || !reads_groups(weights.group, weights.in, &part.codes.log2_of_group)) return false;
      part.w_stride = weights.w_stride;
      part.codes.bits = weights.type == Element::I4 ? 4 : 8;
      part.codes.scales = weights.scales + first * weights.scale_stride;
      part.codes.scale_stride = weights.scale_stride;
    }
    part.w = static_cast<const std::byte*>(weights.w) + first * row_bytes(weights);
    part.inputs = weights.in;
    return true;
  }

  /// Computes outputs [first, first + count) of some tiles.
  void compute(int64_t first, int64_t count, int64_t first_tile, int64_t tiles) const {
    PackedProduct part{.x = x,
                       .x_inputs = x_inputs,
                       .rows = rows,
                       .first_tile = first_tile,
                       .tiles = tiles,
                       .outputs = count,
                       .y = y + first,
                       .stride = weights.out};
    if (products.multiply_any) {
      Gemv of = weights;
      of.first = first;
      of.last = first + count;
      return products.multiply_any(of, part);
    }
    if (describe_stored(first, part)) return products.multiply(part);
    for (const int64_t end = first + count; first < end; first += part.outputs) {
      part.outputs = std::min(end - first, most_outputs);
      part.y = y + first;
      compute_widened(first, part);
    }
  }

  /// Turns outputs [first, first + count) of the rows from `begin` on from sums of integers to numbers.
  void scale(int64_t first, int64_t count, int64_t begin, std::span<const RoundedRow> of_rows) const {
    thread_local Scratch scratch;
    auto* scales = static_cast<float*>(scratch.get(4 * count));
    for (int64_t o = 0; o < count; ++o)
      scales[o] = std::bit_cast<float>(uint32_t{weights.scales[(first + o) * weights.scale_stride]} << 16);
    float* row = y + begin * weights.out + first;
    for (const RoundedRow& rounded : of_rows) {
      for (int64_t o = 0; o < count; ++o)
        row[o] = static_cast<float>(static_cast<int32_t>(std::bit_cast<uint32_t>(row[o]) - rounded.excess)) *
                 rounded.scale * scales[o];
      row += weights.out;
    }
  }

  /// Widens whole passes of the part's weights, and whole groups of codes, at a time.
  void compute_widened(int64_t first, PackedProduct part) const {
    thread_local Scratch scratch;
    const int64_t at_once = std::lcm(products.pass, std::max<int64_t>(1, weights.group));
    // rows begin in different sets of the cache
    part.w_stride = (std::min(at_once, weights.in) / products.vector + 2) * products.vector;
    auto* wide = static_cast<std::byte*>(scratch.get(products.bytes * part.outputs * part.w_stride));
    part.w = wide;
    do {
      part.inputs = std::min(at_once, weights.in - part.first);
      widen(first, part.outputs, part.first, part.inputs, part.w_stride, wide);
      products.multiply(part);
      part.first += at_once;
    } while (part.first < weights.in);
  }
};

}  // namespace

at::Tensor packed_linear(const at::Tensor& given, const Gemv& weights, const at::Tensor& given_bias,
                         const PackedProducts& products) {
  const at::Tensor x = given.contiguous(), bias = given_bias.defined() ? given_bias.contiguous() : given_bias;
  const int64_t rows = x.size(0), in = weights.in, out = weights.out;
  at::Tensor y = at::empty({rows, out}, x.options());
  if (y.numel() == 0) return y;  // a rank may have no rows of a matrix
  const int64_t x_inputs = (in + products.vector - 1) / products.vector * products.vector;
  const at::Tensor packed = at::empty({rows * x_inputs * products.bytes}, x.options().dtype(at::kByte));
  const auto* from = x.const_data_ptr<float>();
  auto* to = reinterpret_cast<std::byte*>(packed.mutable_data_ptr<uint8_t>());
  auto* results = y.mutable_data_ptr<float>();
  ThreadPool& threads = thread_pool();
  const int64_t tiles = tiles_of(rows, products.tile_rows);
  const TileRows split = tile_rows_of(rows, tiles);
  const auto row_of = [&](int64_t tile) { return first_row(split, tile); };
  const Product product{products, weights, to, x_inputs, rows, results};
  std::vector<RoundedRow> rounded(product.integers() ? static_cast<size_t>(rows) : 0);
  threads.parallel_for(tiles, [&](int64_t t) {
    products.pack(from + row_of(t) * in, row_of(t + 1) - row_of(t), in, in, to + row_of(t) * x_inputs * products.bytes,
                  rounded.data() + (rounded.empty() ? 0 : row_of(t)));
  });
  // outputs [first, last) of tiles [begin, end)
  const auto compute = [&](int64_t first, int64_t last, int64_t begin, int64_t end) {
    product.compute(first, last - first, begin, end - begin);
    const int64_t row = row_of(begin), count = row_of(end) - row;
    if (product.integers())
      product.scale(first, last - first, row,
                    std::span(rounded).subspan(static_cast<size_t>(row), static_cast<size_t>(count)));
    add_bias(results + row * out, bias, count, out, first, last);
  };
  if (tiles == 1) {
    const OutputChunks chunks(out, row_bytes(weights), threads.threads());
    threads.parallel_for(chunks.count(), [&](int64_t i) { compute(chunks.first(i), chunks.first(i + 1), 0, 1); });
    return y;
  }
  const int64_t blocks = (rows + block_rows - 1) / block_rows, share = out / (4 * threads.threads());
  const int64_t least = products.tile_outputs;
  const int64_t size = std::clamp((share + least - 1) / least * least, least, most_outputs);
  const int64_t chunks = (out + size - 1) / size;
  threads.parallel_for(blocks * chunks, [&](int64_t i) {
    const int64_t first = i % chunks * size, last = std::min(out, first + size);
    const int64_t begin = tiles * (i / chunks) / blocks, end = tiles * (i / chunks + 1) / blocks;
    compute(first, last, begin, end);
  });
  return y;
}

}  // namespace pm::ops
