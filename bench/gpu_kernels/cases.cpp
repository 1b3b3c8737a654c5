// SPDX-License-Identifier: Apache-2.0
// Cases of matrix products of few rows, kernels of single rows, and the sampler.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "bench/gpu_kernels/case.h"
#include "worker/ops/cuda/activation.h"
#include "worker/ops/cuda/gemv.h"
#include "worker/ops/cuda/norm.h"
#include "worker/ops/cuda/rotary.h"
#include "worker/ops/cuda/sample.h"

namespace pm::bench_gpu {

namespace {

using ops::cuda::RowSampling;

const char* name_of(Element type) { return type == Element::F32 ? "f32" : type == Element::BF16 ? "bf16" : "i8"; }
std::string rows_of(int64_t rows) { return std::to_string(rows) + (rows == 1 ? " row" : " rows"); }

constexpr int64_t scale_group = 32;  // inputs that share a scale, as worker/ops/int8.h has them

struct Matrix {
  int64_t in, out;
};

Case gemv_case(const Matrix& m, int64_t rows, Element w_type, Element x_type, int64_t cache_bytes) {
  const int64_t groups = w_type == Element::I8 ? (m.in + scale_group - 1) / scale_group : 0;
  Case made;
  made.name = std::string("gemv ") + name_of(w_type) + " x " + name_of(x_type) + " " + std::to_string(m.in) + "->" +
              std::to_string(m.out) + ", " + rows_of(rows);
  made.bytes = static_cast<double>(m.out * m.in * element_bytes(w_type) + m.out * groups * 2 +
                                   rows * (m.in * element_bytes(x_type) + m.out * 4));
  made.flops = 2 * static_cast<double>(rows * m.in * m.out);
  made.tolerance = w_type == Element::BF16 && x_type == Element::F32 ? 4e-3 : 1e-5;  // x may be rounded to bf16
  const int64_t sets = sets_for(made.bytes, cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array w(sets * m.out * m.in, w_type), scales(std::max<int64_t>(m.out * groups, 1), Element::BF16, 11),
        x(rows * m.in, x_type, 23);
    const Result y(rows * m.out, Element::F32);
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::gemv({.x = x.data(),
                       .x_stride = m.in,
                       .x_type = x_type,
                       .w = w.at(set % sets * m.out * m.in),
                       .w_type = w_type,
                       .scales = groups > 0 ? scales.data() : nullptr,
                       .scale_group = groups > 0 ? scale_group : 0,
                       .y = y.data(),
                       .rows = rows,
                       .in = m.in,
                       .out = m.out},
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

/// RMSNorm of rows with the residual addition before it.
Case norm_case(int64_t rows, int64_t width, int64_t cache_bytes) {
  Case made{.name = "norm f32 of " + std::to_string(width) + ", " + rows_of(rows)};
  made.bytes = static_cast<double>(rows * width * 4 * 4 + width * 2);
  made.tolerance = 1e-5;
  const int64_t sets = sets_for(made.bytes, cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array x(sets * rows * width, Element::F32), residual(rows * width, Element::F32, 5),
        weight(width, Element::BF16, 9);
    const Result sum(rows * width, Element::F32), y(rows * width, Element::F32);
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::norm({.rms = true,
                       .x = x.at(set % sets * rows * width),
                       .x_stride = width,
                       .residual = residual.data(),
                       .sum = sum.data(),
                       .y = y.data(),
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

Case activation_case(int64_t rows, int64_t width, int64_t cache_bytes) {
  Case made{.name = "silu and product f32 of " + std::to_string(width) + ", " + rows_of(rows)};
  made.bytes = static_cast<double>(rows * width * 3 * 4);
  made.tolerance = 1e-5;
  const int64_t sets = sets_for(made.bytes, cache_bytes);
  made.prepare = [=]() -> Prepared {
    const Array x(sets * rows * 2 * width, Element::F32);
    const Result y(rows * width, Element::F32);
    const Launch launch = [=](int64_t set, Stream stream) {
      ops::cuda::activate({.activation = ops::cuda::Activation::Silu,
                           .gated = true,
                           .x = x.at(set % sets * rows * 2 * width),
                           .y = y.data(),
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

/// Rotates queries and keys, and writes keys and values to the cache. Each token has a KV block of its own.
Case rotary_case(const Heads& h, int64_t tokens) {
  const int64_t vectors = h.heads + 2 * h.kv_heads, n = h.d / 2, block = h.kv_heads * block_tokens * h.d;
  Case made{.name = "rotary and cache write f32 to bf16, " + std::to_string(h.heads) + "/" +
                    std::to_string(h.kv_heads) + " heads of " + std::to_string(h.d) + ", " + rows_of(tokens)};
  made.bytes = static_cast<double>(tokens * (vectors * h.d * 4 + h.heads * h.d * 4 + 2 * h.kv_heads * h.d * 2 + n * 8));
  made.tolerance = 1e-5;
  made.prepare = [=]() -> Prepared {
    const Array qkv(tokens * vectors * h.d, Element::F32), angles(tokens * n * 2, Element::F32, 3);
    const Result q(tokens * h.heads * h.d, Element::F32), k(tokens * block, Element::BF16),
        v(tokens * block, Element::BF16);
    std::vector<int64_t> places(static_cast<size_t>(tokens));
    for (int64_t i = 0; i < tokens; ++i) places[static_cast<size_t>(i)] = i * block_tokens;
    const Table<int64_t> slots(places);
    const Launch launch = [=](int64_t, Stream stream) {
      ops::cuda::rotary_write({.qkv = qkv.data(),
                               .qkv_stride = vectors * h.d,
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
                               .d = h.d},
                              stream);
    };
    const auto error = [=] {
      Error all;
      for (const int64_t token : {int64_t{0}, tokens - 1}) {
        const std::vector<double> got = q.read(token * h.heads * h.d, h.heads * h.d),
                                  given = qkv.read(token * vectors * h.d, h.heads * h.d),
                                  cosines = angles.read(token * n, n), sines = angles.read((tokens + token) * n, n);
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

void add_gemv(std::vector<Case>& cases, const Device& device, bool small) {
  // An 8B model: queries, keys and values; output; gate and up; down; head. A 1B model: the first, third and fourth.
  const std::vector<Matrix> matrices =
      small ? std::vector<Matrix>{{96, 40}, {64, 24}}
            : std::vector<Matrix>{{4096, 6144},   {4096, 4096}, {4096, 28672}, {14336, 4096},
                                  {4096, 128256}, {2048, 3072}, {2048, 16384}, {8192, 2048}};
  const std::vector<int64_t> rows = small ? std::vector<int64_t>{1, 4} : std::vector<int64_t>{1, 2, 4, 8, 16, 32};
  constexpr std::array<std::pair<Element, Element>, 3> types{
      {{Element::BF16, Element::F32}, {Element::BF16, Element::BF16}, {Element::I8, Element::F32}}};
  for (const auto& [w, x] : types) {
    for (const Matrix& matrix : matrices) {
      for (const int64_t count : rows) cases.push_back(gemv_case(matrix, count, w, x, device.cache_bytes));
    }
  }
}

void add_row_kernels(std::vector<Case>& cases, const Device& device, bool small) {
  for (const int64_t rows : small ? std::vector<int64_t>{1, 3} : std::vector<int64_t>{1, 64, 2048}) {
    cases.push_back(norm_case(rows, small ? 72 : 4096, device.cache_bytes));
    cases.push_back(activation_case(rows, small ? 40 : 14336, device.cache_bytes));
    cases.push_back(rotary_case(small ? Heads{4, 2, 16} : Heads{32, 8, 128}, rows));
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
