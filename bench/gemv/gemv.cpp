// y = x W^T for a few rows of x: our product, ATen's of fp32 (16-bit weights widened for it tile by tile), ATen's on weights and x of the stored
// type, and a read of the weights, taking turns in one run. `bench_gemv [ROUNDS] [THREADS]`. With one thread processor time counts, which other
// load disturbs less.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <functional>
#include <vector>

#include "worker/ops/backend.h"
#include "worker/ops/cpu/kernels.h"
#include "worker/ops/cpu/team.h"
#include "worker/ops/linear.h"

namespace {

double now(bool processor) {
  timespec time{};
  clock_gettime(processor ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Adds up a part of a matrix: a read with little else.
uint64_t read_part(const char* data, int64_t bytes) {
  using Words = uint64_t __attribute__((vector_size(16), aligned(1), may_alias));
  Words sums[4] = {};
  for (int64_t i = 0; i + 64 <= bytes; i += 64) {
    __builtin_prefetch(data + i + 3072, 0, 2);
    const auto* line = reinterpret_cast<const Words*>(data + i);
    for (int k = 0; k < 4; ++k) sums[k] += line[k];
  }
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

pm::ops::Int8Matrix quantised(const at::Tensor& w) {
  constexpr int64_t group = 32;
  const pm::ops::Int8Matrix made{at::empty(w.sizes(), at::kChar), at::empty({w.size(0), w.size(1) / group}, at::kBFloat16), group};
  pm::ops::quantise(w.const_data_ptr<float>(), w.size(0), w.size(1), group, made.numbers.mutable_data_ptr<int8_t>(), static_cast<uint16_t*>(made.scales.mutable_data_ptr()));
  return made;
}

void read_all(const at::Tensor& w) {
  static std::atomic<uint64_t> sink;
  const int64_t parts = 4 * at::get_num_threads(), bytes = static_cast<int64_t>(w.nbytes());
  pm::ops::team().each(parts, [&](int64_t i) { sink += read_part(static_cast<const char*>(w.const_data_ptr()) + bytes * i / parts / 64 * 64, bytes / parts); });
}

/// As `linear` does for many rows.
at::Tensor widened(const at::Tensor& x, const at::Tensor& w) {
  const int64_t tile = std::max<int64_t>(16, (1 << 20) / (4 * w.size(1)));
  if (w.scalar_type() == at::kFloat) {
    return at::mm(x, w.t());
  }
  at::Tensor y = at::empty({x.size(0), w.size(0)});
  for (int64_t first = 0; first < w.size(0); first += tile) {
    const int64_t count = std::min(tile, w.size(0) - first);
    y.narrow(1, first, count).copy_(at::mm(x, w.narrow(0, first, count).to(at::kFloat).t()));
  }
  return y;
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 15, threads = argc > 2 ? std::atoi(argv[2]) : 1;
  at::set_num_threads(threads);
  constexpr int64_t in = 4096, out = 11008, copies = 3;   // one MLP matrix of a 7B model; several, so that no cache holds them
  std::printf("W [%ld, %ld], %d thread%s, kernels for %s, best of %d rounds; GB/s of weights (share of the read)\n", static_cast<long>(out), static_cast<long>(in), threads,
              threads > 1 ? "s" : "", pm::ops::kernels().name, rounds);
  std::printf("%-8s %5s %12s %20s %20s %20s\n", "type", "rows", "read", "ours", "ATen, fp32", "ATen, same type");
  for (at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kChar}) {
    std::vector<at::Tensor> weights;
    std::vector<pm::ops::Int8Matrix> numbers;
    for (int64_t i = 0; i < copies; ++i) {
      if (type == at::kChar) numbers.push_back(quantised(at::randn({out, in}))), weights.push_back(numbers.back().numbers);
      else weights.push_back(at::randn({out, in}).to(type));
    }
    const bool int8 = type == at::kChar;   // the read is of its numbers, the bytes are theirs; scales come on top
    const double bytes = static_cast<double>(weights[0].nbytes());
    const int64_t most = type == at::kFloat ? pm::ops::kernels().fp32_rows : pm::ops::kernels().half_rows;
    for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 48, 64, 96, 128}) {
      if (rows > most) break;   // from here on `linear` is ATen
      const at::Tensor x = at::randn({rows, in}), same = x.to(int8 ? at::kFloat : type);
      const auto which_of = [&](const at::Tensor& w) -> const pm::ops::Int8Matrix& { return *std::find_if(numbers.begin(), numbers.end(), [&](const auto& one) { return one.numbers.is_same(w); }); };
      const std::function<void(const at::Tensor&)> runs[] = {read_all, [&](const at::Tensor& w) { int8 ? pm::ops::linear(x, which_of(w), {}) : pm::ops::linear(x, w); },
                                                             [&](const at::Tensor& w) { int8 ? pm::ops::cpu_backend().Backend::int8_linear(x, which_of(w), {}) : widened(x, w); },
                                                             [&](const at::Tensor& w) { if (!int8) at::mm(same, w.t()); }};
      double best[4] = {1e9, 1e9, 1e9, 1e9};
      for (int round = 0; round < rounds; ++round) {
        for (size_t which = 0; which < (int8 ? 3 : 4); ++which) {
          const double start = now(threads == 1);
          runs[which](weights[static_cast<size_t>(round) % copies]);
          best[which] = std::min(best[which], now(threads == 1) - start);
        }
      }
      std::printf("%-8s %5ld %12.1f", c10::toString(type), static_cast<long>(rows), bytes / best[0] / 1e9);
      for (int which = 1; which < (int8 ? 3 : 4); ++which) std::printf(" %13.1f (%.2f)", bytes / best[which] / 1e9, best[0] / best[which]);
      std::printf("\n");
    }
  }
}
