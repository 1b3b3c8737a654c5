// SPDX-License-Identifier: Apache-2.0
// Measures y = x W^T for a few rows of x in turns: the worker's kernel, ATen in fp32 (16-bit weights are widened tile
// by tile), ATen on weights and x of the stored dtype, and a plain read of the weights. `bench_gemv [ROUNDS]
// [THREADS]`. With one thread it measures CPU time, which other load disturbs less.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <vector>

#include "bench/gemv/plain_read.h"
#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/backend.h"
#include "worker/ops/cpu/kernels.h"
#include "worker/ops/linear.h"

using pm::bench::now;
using pm::bench::read_all;

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15, threads = argc > 2 ? std::atoi(argv[2]) : 1;
  at::set_num_threads(threads);
  const pm::ops::Backend aten;
  constexpr int64_t in = 4096, out = 11008,
                    copies = 3;  // one MLP matrix of a 7B model; several, so that no cache holds them
  std::printf("W [%ld, %ld], %d thread%s, kernels for %s, best of %d rounds; GB/s of weights (share of the read)\n",
              static_cast<long>(out), static_cast<long>(in), threads, threads > 1 ? "s" : "", pm::ops::kernels().name,
              rounds);
  std::printf("%-8s %5s %12s %20s %20s %20s\n", "type", "rows", "read", "ours", "ATen, fp32", "ATen, same type");
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kChar}) {
    std::vector<at::Tensor> weights;
    std::vector<pm::ops::QuantizedMatrix> numbers;
    for (int64_t i = 0; i < copies; ++i) {
      if (type == at::kChar)
        numbers.push_back(pm::ops::reference::int8_matrix(at::randn({out, in}), 32)),
            weights.push_back(numbers.back().codes);
      else
        weights.push_back(at::randn({out, in}).to(type));
    }
    const bool int8 = type == at::kChar;  // reads and counts the int8 values without scales
    const double bytes = static_cast<double>(weights[0].nbytes());
    const int64_t most = type == at::kFloat ? pm::ops::kernels().fp32_rows : pm::ops::kernels().half_rows;
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64, 96, 128}) {
      if (rows > most) break;  // from here on `linear` is ATen
      const at::Tensor x = at::randn({rows, in}), same = x.to(int8 ? at::kFloat : type);
      const auto matrix_with_scales = [&](const at::Tensor& w) -> const pm::ops::QuantizedMatrix& {
        return *std::find_if(numbers.begin(), numbers.end(), [&](const auto& one) { return one.codes.is_same(w); });
      };
      const std::function<void(const at::Tensor&)> runs[] = {
          read_all,
          [&](const at::Tensor& w) { int8 ? pm::ops::linear(x, matrix_with_scales(w), {}) : pm::ops::linear(x, w); },
          [&](const at::Tensor& w) {
            int8 ? aten.quantized_linear(x, matrix_with_scales(w), {}, at::kFloat) : aten.linear(x, w, {}, at::kFloat);
          },
          [&](const at::Tensor& w) {
            if (!int8) at::mm(same, w.t());
          }};
      double best[4] = {1e9, 1e9, 1e9, 1e9};
      for (int round = 0; round < rounds; ++round) {
        for (size_t which = 0; which < (int8 ? 3 : 4); ++which) {
          const double start = now(threads == 1);
          runs[which](weights[static_cast<size_t>(round) % copies]);
          best[which] = std::min(best[which], now(threads == 1) - start);
        }
      }
      std::printf("%-8s %5ld %12.1f", c10::toString(type), static_cast<long>(rows), bytes / best[0] / 1e9);
      for (int which = 1; which < (int8 ? 3 : 4); ++which)
        std::printf(" %13.1f (%.2f)", bytes / best[which] / 1e9, best[0] / best[which]);
      std::printf("\n");
    }
  }
}
