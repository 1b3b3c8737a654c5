// SPDX-License-Identifier: Apache-2.0
// Measures y = x W^T in turns: the worker's kernels, ATen in fp32 (16-bit weights are widened tile
// by tile), ATen on weights and x of the stored dtype, and a plain read of the weights. `bench_gemv [ROUNDS]
// [THREADS] [TYPES] [ROWS]`: TYPES are some of those that it prints, separated by commas, and ROWS the most rows of x.
// With one thread it measures CPU time, which other load disturbs less.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "bench/gemv/plain_read.h"
#include "worker/ops/backend.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/linear.h"
#include "worker/ops/quantized_matrix.h"

using pm::bench::now;
using pm::bench::read_all;

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15, threads = argc > 2 ? std::atoi(argv[2]) : 1;
  const std::string types = argc > 3 ? std::string(",") + argv[3] + "," : "";
  const int64_t most_rows = argc > 4 ? std::atoll(argv[4]) : 512;
  at::set_num_threads(threads);
  const pm::ops::Backend aten;
  constexpr int64_t in = 4096, out = 11008,
                    copies = 3;  // one MLP matrix of a 7B model; several, so that no cache holds them
  std::printf("W [%ld, %ld], %d thread%s, kernels for %s, best of %d rounds; GB/s of weights (share of the read)\n",
              static_cast<long>(out), static_cast<long>(in), threads, threads > 1 ? "s" : "", pm::ops::kernels().name,
              rounds);
  std::printf("%-8s %5s %12s %20s %20s %20s\n", "type", "rows", "read", "ours", "ATen, fp32", "ATen, same type");
  struct Stored {
    const char* name;
    at::ScalarType type;  ///< of codes: in which their model computes
    int bits = 0;         ///< of codes
    int input_bits = 0;
  };
  for (const Stored& stored :
       {Stored{"Float", at::kFloat}, Stored{"BFloat16", at::kBFloat16}, Stored{"Half", at::kHalf},
        Stored{"I8", at::kFloat, 8}, Stored{"I4", at::kFloat, 4}, Stored{"I8 BF16", at::kBFloat16, 8},
        Stored{"I4 BF16", at::kBFloat16, 4}, Stored{"I8A8", at::kBFloat16, 8, 8}}) {
    if (!types.empty() && types.find("," + std::string(stored.name) + ",") == std::string::npos) continue;
    std::vector<at::Tensor> weights;
    std::vector<pm::ops::QuantizedMatrix> quantized;
    for (int64_t i = 0; i < copies; ++i) {
      const at::Tensor w = at::randn({out, in});
      if (stored.bits > 0) {
        const pm::ops::CodeLayout layout{
            .group = stored.input_bits > 0 ? in : 32, .bits = stored.bits, .input_bits = stored.input_bits};
        quantized.push_back(pm::ops::quantized(w, layout, stored.type));
      }
      weights.push_back(stored.bits > 0 ? quantized.back().codes : w.to(stored.type));
    }
    const bool codes = stored.bits > 0;  // reads and counts the codes without scales
    const double bytes = static_cast<double>(weights[0].nbytes());
    const bool wide = stored.type == at::kFloat && !codes;
    const pm::ops::Kernels& kernels = pm::ops::kernels();
    const int64_t most = wide ? kernels.fp32_rows : codes ? kernels.code_rows : kernels.half_rows;
    const bool has_products = kernels.fp32_products || (!wide && kernels.tiles);
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 24, 32, 48, 64, 96, 128, 256, 512}) {
      if (rows > most_rows || (rows > most && !has_products)) break;  // from here on `linear` is ATen
      const at::Tensor x = at::randn({rows, in}), same = x.to(stored.type);
      const std::function<void(size_t)> runs[] = {
          [&](size_t i) { read_all(weights[i]); },
          [&](size_t i) { codes ? pm::ops::linear(x, quantized[i], {}) : pm::ops::linear(x, weights[i]); },
          [&](size_t i) {
            codes ? aten.quantized_linear(x, quantized[i], {}, at::kFloat) : aten.linear(x, weights[i], {}, at::kFloat);
          },
          [&](size_t i) {
            if (!codes) at::mm(same, weights[i].t());
          }};
      double best[4] = {1e9, 1e9, 1e9, 1e9};
      for (int round = 0; round < rounds; ++round) {
        for (size_t which = 0; which < (codes ? 3 : 4); ++which) {
          const double start = now(threads == 1);
          runs[which](static_cast<size_t>(round) % copies);
          best[which] = std::min(best[which], now(threads == 1) - start);
        }
      }
      std::printf("%-8s %5ld %12.1f", stored.name, static_cast<long>(rows), bytes / best[0] / 1e9);
      for (int which = 1; which < (codes ? 3 : 4); ++which)
        std::printf(" %13.1f (%.2f)", bytes / best[which] / 1e9, best[0] / best[which]);
      std::printf("\n");
    }
  }
}
