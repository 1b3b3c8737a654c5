// y = x W^T for 1 to 8 rows: our kernels, ATen's product on weights of the same type, and a read of as many bytes, taking turns in one run on one thread.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <vector>

#include "worker/ops/linear.h"

namespace {

using Clock = std::chrono::steady_clock;

/// Adds up a matrix as 64-bit words: a read with little else.
uint64_t read_all(const at::Tensor& w) {
  const auto* words = static_cast<const uint64_t*>(w.const_data_ptr());
  const int64_t count = w.numel() * w.element_size() / 8;
  uint64_t sum[16] = {};
  for (int64_t i = 0; i + 16 <= count; i += 16) {
    for (int lane = 0; lane < 16; ++lane) sum[lane] += words[i + lane];
  }
  uint64_t all = 0;
  for (uint64_t part : sum) all += part;
  return all;
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);   // as our kernels, and as a rank that has one core
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15;
  constexpr int64_t in = 4096, out = 11008, copies = 3;   // one MLP matrix of a 7B model; several, so that no cache holds them
  std::printf("W [%ld, %ld], one thread, best of %d rounds; GB/s of weights (share of the plain read)\n", static_cast<long>(out), static_cast<long>(in), rounds);
  std::printf("%-5s %5s %12s %20s %20s\n", "type", "rows", "read", "ours", "ATen");
  volatile uint64_t sink = 0;
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf}) {
    std::vector<at::Tensor> weights;
    for (int64_t i = 0; i < copies; ++i) weights.push_back(at::randn({out, in}).to(type));
    const double bytes = static_cast<double>(weights[0].nbytes());
    for (int64_t rows : {1, 2, 4, 8}) {
      const at::Tensor x = at::randn({rows, in}), same = x.to(type);
      double best[3] = {1e9, 1e9, 1e9};
      const std::function<void(const at::Tensor&)> runs[] = {[&](const at::Tensor& w) { sink = sink + read_all(w); }, [&](const at::Tensor& w) { pm::ops::linear(x, w); },
                                                             [&](const at::Tensor& w) { at::mm(same, w.t()); }};
      for (int round = 0; round < rounds; ++round) {
        for (size_t which = 0; which < 3; ++which) {
          const auto start = Clock::now();
          runs[which](weights[static_cast<size_t>(round) % copies]);
          best[which] = std::min(best[which], std::chrono::duration<double>(Clock::now() - start).count());
        }
      }
      std::printf("%-5s %5ld %12.1f %13.1f (%.2f) %13.1f (%.2f)\n", c10::toString(type), static_cast<long>(rows), bytes / best[0] / 1e9, bytes / best[1] / 1e9,
                  best[0] / best[1], bytes / best[2] / 1e9, best[0] / best[2]);
    }
  }
}
