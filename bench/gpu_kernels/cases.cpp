// SPDX-License-Identifier: Apache-2.0
// Cases of matrix products of few rows, widening of quantised weights, kernels of single rows, and the sampler.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "bench/gpu_kernels/case.h"
#include "contract/widened_tile.h"
#include "worker/ops/cuda/activation.h"
#include "worker/ops/cuda/linear/gemv.h"
#include "worker/ops/cuda/linear/widen.h"
#include "worker/ops/cuda/norm.h"
#include "worker/ops/cuda/rotary.h"
#include "worker/ops/cuda/sample.h"

namespace pm::bench_gpu {

namespace {

using ops::RowSampling;

const char* name_of(Element type) { return type == Element::F32 ? "f32" : type == Element::BF16 ? "bf16" : "i8"; }
std::string rows_of(int64_t rows) { return std::to_string(rows) + (rows == 1 ? " row" : " rows"); }

constexpr int64_t scale_group = 32;  // inputs that share a scale, as worker/ops/quantized_matrix.h has them

struct Matrix {
  int64_t in, out;
};

/// The types of a product: of the weights, of x and the result, and to which weights and x are rounded where the
/// weights are INT8.
struct Types {
  Element w, x, compute;
};

Case gemv_case(const Matrix& m, int64_t rows, const Types& types, const Device& device) {
  const int64_t groups = types.w == Element::I8 ? (m.in + scale_group - 1) / scale_group : 0;
  const int multiprocessors = static_cast<int>(device.multiprocessors);
  Case made;
  made.name = std::string("gemv ") + name_of(types.w) +
              (types.w == Element::I8 ? std::string(" for ") + name_of(types.compute) : "") + " x " + name_of(types.x) +
              " " + std::to_string(m.in) + "->" + std::to_string(m.out) + ", " + rows_of(rows);
  made.bytes = static_cast<double>(m.out * m.in * element_bytes(types.w) + m.out * groups * 2 +
                                   rows * (m.in + m.out) * element_bytes(types.x));
  made.flops = 2 * static_cast<double>(rows * m.in * m.out);
  // x or the result is rounded to bf16, and so are INT8 weights times their scale
  made.tolerance = types.compute == Element::BF16 ? 4e-3 : 1e-5;
  const int64_t sets = sets_for(made.bytes, device.cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array w(sets * m.out * m.in, types.w), scales(std::max<int64_t>(m.out * groups, 1), Element::BF16, 11),
        x(rows * m.in, types.x, 23);
    const Result y(rows * m.out, types.x);
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::gemv({.x = x.data(),
                       .x_stride = m.in,
                       .x_type = types.x,
                       .w = w.at(set % sets * m.out * m.in),
                       .w_type = types.w,
                       .scales = groups > 0 ? scales.data() : nullptr,
                       .scale_group = groups > 0 ? scale_group : 0,
                       .compute = types.compute,
                       .y = y.data(),
                       .y_type = types.x,
                       .rows = rows,
                       .in = m.in,
                       .out = m.out,
                       .multiprocessors = multiprocessors},
                      stream);
    };
    const auto error = [=] {
      Error all;
      const int64_t samples = std::min<int64_t>(m.out, 16);
      const std::vector<double> inputs = x.read(0, rows * m.in);
      for (int64_t i = 0; i < samples; ++i) {
        const int64_t o = i * (m.out - 1) / std::max<int64_t>(samples - 1, 1);
        std::vector<double> weights = w.read(o * m.in, m.in);
        const std::vector<double> row_scales = scales.read(o * groups, groups);
        for (int64_t j = 0; j < m.in && groups > 0; ++j)
          weights[static_cast<size_t>(j)] *= row_scales[static_cast<size_t>(j / scale_group)];
        for (int64_t row = 0; row < rows; ++row) {
          const double sum = std::inner_product(weights.begin(), weights.end(), inputs.begin() + row * m.in, 0.0);
          all.add(y.read(row * m.out + o, 1)[0], sum);
        }
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

/// Widens a whole INT8 matrix as the worker does before a product of many rows: by tiles, into one workspace.
Case widen_case(const Matrix& m, const Device& device) {
  constexpr Element to = Element::BF16;
  const int64_t groups = (m.in + scale_group - 1) / scale_group, tile = widened_tile_rows(m.out, m.in * 2);
  Case made{.name = "widen i8 to bf16 " + std::to_string(m.in) + "->" + std::to_string(m.out)};
  made.bytes = static_cast<double>(m.out * m.in * 3 + m.out * groups * 2);
  made.tolerance = 4e-3;
  const int64_t sets = sets_for(static_cast<double>(m.out * m.in), device.cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array w(sets * m.out * m.in, Element::I8), scales(m.out * groups, Element::BF16, 11);
    const Result widened(tile * m.in, to);
    const Launch launch = [=](int64_t set, Stream stream) {
      for (int64_t first = 0; first < m.out; first += tile)
        ops::cuda::widen({.numbers = w.at((set % sets * m.out + first) * m.in),
                          .stride = m.in,
                          .scales = scales.at(first * groups),
                          .scale_stride = groups,
                          .scale_group = scale_group,
                          .out = widened.data(),
                          .out_type = to,
                          .rows = std::min(tile, m.out - first),
                          .in = m.in},
                         stream);
    };
    const auto error = [=] {  // the last tile lies in the workspace
      Error all;
      const int64_t first = (m.out - 1) / tile * tile;
      for (const int64_t row : {first, m.out - 1}) {
        const std::vector<double> got = widened.read((row - first) * m.in, m.in), numbers = w.read(row * m.in, m.in),
                                  row_scales = scales.read(row * groups, groups);
        for (size_t i = 0; i < got.size(); ++i)
          all.add(got[i], numbers[i] * row_scales[i / static_cast<size_t>(scale_group)]);
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

/// Returns the tolerance of results that are rounded to `type` once or twice.
double tolerance_of(Element type) { return type == Element::F32 ? 1e-5 : 4e-3; }

/// RMSNorm of rows of `type` with the residual addition before it.
Case norm_case(int64_t rows, int64_t width, Element type, int64_t cache_bytes) {
  Case made{.name = std::string("norm ") + name_of(type) + " of " + std::to_string(width) + ", " + rows_of(rows)};
  made.bytes = static_cast<double>(rows * width * 4 * element_bytes(type) + width * 2);
  made.tolerance = tolerance_of(type);
  const int64_t sets = sets_for(made.bytes, cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array x(sets * rows * width, type), residual(rows * width, type, 5), weight(width, Element::BF16, 9);
    const Result sum(rows * width, type), y(rows * width, type);
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::norm({.rms = true,
                       .x = x.at(set % sets * rows * width),
                       .x_stride = width,
                       .x_type = type,
                       .residual = residual.data(),
                       .sum = sum.data(),
                       .sum_type = type,
                       .y = y.data(),
                       .y_type = type,
                       .weight = weight.data(),
                       .parameters = Element::BF16,
                       .rows = rows,
                       .width = width},
                      stream);
    };
    const auto error = [=] {
      Error all;
      for (const int64_t row : {int64_t{0}, rows - 1}) {
        const std::vector<double> got = y.read(row * width, width), added = residual.read(row * width, width),
                                  weights = weight.read(0, width);
        std::vector<double> values = x.read(row * width, width);
        double square = 0;
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] += added[i];
          square += values[i] * values[i];
        }
        const double scale = 1 / std::sqrt(square / static_cast<double>(width) + 1e-5);
        for (size_t i = 0; i < values.size(); ++i) all.add(got[i], values[i] * scale * weights[i]);
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

Case activation_case(int64_t rows, int64_t width, Element type, int64_t cache_bytes) {
  Case made{.name = std::string("silu and product ") + name_of(type) + " of " + std::to_string(width) + ", " +
                    rows_of(rows)};
  made.bytes = static_cast<double>(rows * width * 3 * element_bytes(type));
  made.tolerance = tolerance_of(type);
  const int64_t sets = sets_for(made.bytes, cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array x(sets * rows * 2 * width, type);
    const Result y(rows * width, type);
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::activate({.activation = ops::cuda::Activation::Silu,
                           .gated = true,
                           .x = x.at(set % sets * rows * 2 * width),
                           .y = y.data(),
                           .type = type,
                           .rows = rows,
                           .width = width},
                          stream);
    };
    const auto error = [=] {
      Error all;
      for (const int64_t row : {int64_t{0}, rows - 1}) {
        const std::vector<double> got = y.read(row * width, width), gates = x.read(row * 2 * width, width),
                                  factors = x.read(row * 2 * width + width, width);
        for (size_t i = 0; i < got.size(); ++i) all.add(got[i], gates[i] / (1 + std::exp(-gates[i])) * factors[i]);
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

struct Heads {
  int64_t heads, kv_heads, d;
};

/// Rotates queries and keys, after a norm of each of their heads with `norms`, and writes keys and values to the cache.
/// Each token has a KV block of its own.
Case rotary_case(const Heads& h, int64_t tokens, bool norms) {
  const int64_t vectors = h.heads + 2 * h.kv_heads, n = h.d / 2, block = h.kv_heads * block_tokens * h.d;
  constexpr Element type = Element::BF16;
  Case made{.name = std::string(norms ? "norms of heads, " : "") + "rotary and cache write bf16, " +
                    std::to_string(h.heads) + "/" + std::to_string(h.kv_heads) + " heads of " + std::to_string(h.d) +
                    ", " + rows_of(tokens)};
  made.bytes = static_cast<double>(tokens * ((vectors + h.heads + 2 * h.kv_heads) * h.d * 2 + n * 8));
  made.tolerance = tolerance_of(type);
  made.prepare = [=]() -> Prepared {
    const Array qkv(tokens * vectors * h.d, type), angles(tokens * n * 2, Element::F32, 3),
        weight(h.d, Element::BF16, 5);
    const Result q(tokens * h.heads * h.d, type), k(tokens * block, Element::BF16), v(tokens * block, Element::BF16);
    std::vector<int64_t> places(static_cast<size_t>(tokens));
    for (int64_t i = 0; i < tokens; ++i) places[static_cast<size_t>(i)] = i * block_tokens;
    const Table<int64_t> slots(places);
    const ops::cuda::HeadNorm norm{.active = norms, .weight = weight.data(), .parameters = Element::BF16};
    const Launch launch = [=](int64_t, Stream stream) {
      ops::cuda::rotary_write({.qkv = qkv.data(),
                               .qkv_stride = vectors * h.d,
                               .type = type,
                               .q = q.data(),
                               .cos = static_cast<const float*>(angles.data()),
                               .sin = static_cast<const float*>(angles.at(tokens * n)),
                               .n = n,
                               .slots = slots.data(),
                               .k_cache = k.data(),
                               .v_cache = v.data(),
                               .block_stride = block,
                               .cache = Element::BF16,
                               .tokens = tokens,
                               .heads = h.heads,
                               .kv_heads = h.kv_heads,
                               .d = h.d,
                               .query_norm = norm,
                               .key_norm = norm},
                              stream);
    };
    const auto error = [=] {
      Error all;
      const std::vector<double> weights = weight.read(0, h.d);
      for (const int64_t token : {int64_t{0}, tokens - 1}) {
        const std::vector<double> got = q.read(token * h.heads * h.d, h.heads * h.d),
                                  cosines = angles.read(token * n, n), sines = angles.read((tokens + token) * n, n);
        std::vector<double> given = qkv.read(token * vectors * h.d, h.heads * h.d);
        for (size_t head = 0; norms && head < given.size(); head += weights.size()) {
          double square = 0;
          for (size_t i = 0; i < weights.size(); ++i) square += given[head + i] * given[head + i];
          const double scale = 1 / std::sqrt(square / static_cast<double>(h.d) + static_cast<double>(norm.eps));
          for (size_t i = 0; i < weights.size(); ++i) given[head + i] *= scale * weights[i];
        }
        for (size_t i = 0; i < got.size(); ++i) {
          const size_t half = static_cast<size_t>(n), column = i % (2 * half), pair = i % half, head = i - column;
          const double a = given[head + pair], b = given[head + half + pair];
          all.add(got[i], column < half ? a * cosines[pair] - b * sines[pair] : b * cosines[pair] + a * sines[pair]);
        }
      }
      return all.relative();
    };
    return {launch, error};
  };
  return made;
}

struct Way {
  const char* name;
  RowSampling sampling;
};

Case sample_case(const Way& way, int64_t rows, int64_t vocabulary, int64_t cache_bytes) {
  Case made{.name = std::string("sample ") + way.name + " of " + std::to_string(vocabulary) + ", " + rows_of(rows)};
  made.bytes = static_cast<double>(rows * vocabulary * 4);
  const int64_t sets = sets_for(made.bytes, cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array scores(sets * rows * vocabulary, Element::F32);
    std::vector<RowSampling> each(static_cast<size_t>(rows), way.sampling);
    for (size_t row = 0; row < each.size(); ++row) each[row].sequence = row;
    const Table<RowSampling> sampling(each);
    const Table<int32_t> ids(std::vector<int32_t>(static_cast<size_t>(rows), -1));
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::sample({.scores = static_cast<const float*>(scores.at(set % sets * rows * vocabulary)),
                         .score_stride = vocabulary,
                         .sampling = sampling.data(),
                         .ids = ids.data(),
                         .rows = rows,
                         .vocabulary = vocabulary},
                        stream);
    };
    // The greedy id is the best; a sampled id is one of the vocabulary and, with top_k, of the k best.
    const auto error = [=] {
      std::vector<int32_t> got(static_cast<size_t>(rows));
      copy_memory(got.data(), ids.data(), rows * static_cast<int64_t>(sizeof(int32_t)));
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t id = got[static_cast<size_t>(row)];
        if (id < 0 || id >= vocabulary) return 1.0;
        const std::vector<double> row_scores = scores.read(row * vocabulary, vocabulary);
        const auto better = std::count_if(row_scores.begin(), row_scores.end(),
                                          [&](double score) { return score > row_scores[static_cast<size_t>(id)]; });
        if (!way.sampling.sample && better > 0) return 1.0;
        if (way.sampling.top_k > 0 && better >= way.sampling.top_k) return 1.0;
      }
      return 0.0;
    };
    return {launch, error};
  };
  return made;
}

}  // namespace

int64_t sets_for(double bytes, int64_t cache_bytes) {
  constexpr int64_t max_sets = 64;
  return std::clamp<int64_t>(static_cast<int64_t>(std::ceil(4 * static_cast<double>(cache_bytes) / bytes)), 1,
                             max_sets);
}

void add_gemv(std::vector<Case>& cases, std::vector<Case>& last, const Device& device, bool small) {
  // An 8B model: queries, keys and values; output; gate and up; down; head. A 1B model: the first, third and fourth.
  const std::vector<Matrix> matrices =
      small ? std::vector<Matrix>{{96, 40}, {64, 24}}
            : std::vector<Matrix>{{4096, 6144},   {4096, 4096}, {4096, 28672}, {14336, 4096},
                                  {4096, 128256}, {2048, 3072}, {2048, 16384}, {8192, 2048}};
  // tools/gpu/libraries.py multiplies the same rows by cuBLAS, and tools/gpu/crossover.py compares.
  const std::vector<int64_t> some = small ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{1, 4, 8};
  const std::vector<int64_t> others =
      small ? std::vector<int64_t>{5, 9} : std::vector<int64_t>{2, 3, 5, 6, 12, 16, 32, 64};
  const Types bf16{Element::BF16, Element::BF16, Element::BF16}, int8{Element::I8, Element::BF16, Element::BF16};
  const auto add = [&](std::vector<Case>& to, const Types& types, const std::vector<int64_t>& rows) {
    for (const Matrix& matrix : matrices) {
      for (const int64_t count : rows) to.push_back(gemv_case(matrix, count, types, device));
    }
  };
  for (const Types& types :
       {bf16, Types{Element::BF16, Element::F32, Element::BF16}, int8, Types{Element::I8, Element::F32, Element::F32}})
    add(cases, types, some);
  for (const Matrix& matrix : matrices) cases.push_back(widen_case(matrix, device));
  for (const Types& types : {bf16, int8}) add(last, types, others);
}

void add_row_kernels(std::vector<Case>& cases, const Device& device, bool small) {
  for (const int64_t rows : small ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 64, 2048}) {
    for (const Element type : {Element::BF16, Element::F32}) {
      cases.push_back(norm_case(rows, small ? 72 : 4096, type, device.cache_bytes));
      cases.push_back(activation_case(rows, small ? 40 : 14336, type, device.cache_bytes));
    }
    for (const bool norms : {false, true})
      cases.push_back(rotary_case(small ? Heads{4, 2, 16} : Heads{32, 8, 128}, rows, norms));
  }
}

void add_sample(std::vector<Case>& cases, const Device& device, bool small) {
  const auto sampled = [](RowSampling how) {
    how.sample = true;
    how.temperature = 0.7;
    how.seed = 3;
    return how;
  };
  const std::vector<Way> ways{{"greedy", {}},
                              {"by temperature", sampled({})},
                              {"by top_k 50", sampled({.top_k = 50})},
                              {"by top_p 0.9", sampled({.top_p = 0.9})},
                              {"by top_k 50 and top_p 0.9", sampled({.top_p = 0.9, .top_k = 50})},
                              {"by min_p 0.05", sampled({.min_p = 0.05})}};
  for (const Way& way : ways) {
    for (const int64_t rows : small ? std::vector<int64_t>{2} : std::vector<int64_t>{1, 8, 64})
      cases.push_back(sample_case(way, rows, small ? 600 : 128256, device.cache_bytes));
  }
}

}  // namespace pm::bench_gpu
