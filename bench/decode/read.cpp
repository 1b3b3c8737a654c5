// SPDX-License-Identifier: Apache-2.0
// Measures the upper bound of decoding on this machine: threads read a model's matrices one after another, row by row
// in the order of a product, and only add them up. `bench_read THREADS BYTES OUTxIN...` (BYTES of
// one element) allocates the matrices; for each line of input, a number of reads of all matrices, it prints the times
// at which each read began and ended, in seconds of the monotonic clock, as a JSON array.
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace {

struct Matrix {
  size_t first, rows, row_bytes;
};

constexpr size_t distance = 3072;  // prefetch distance of the worker's products, the fastest that was measured

/// Returns the sum of `bytes` bytes from `data` on, a multiple of 64.
uint64_t read(const char* data, size_t bytes) {
  using Words = uint64_t
      __attribute__((vector_size(16), aligned(1), may_alias));  // the register size of every x86-64 and ARM CPU
  Words sums[4] = {};
  for (size_t i = 0; i < bytes; i += 64) {
    __builtin_prefetch(data + i + distance, 0, 2);
    const auto* line = reinterpret_cast<const Words*>(data + i);
    sums[0] += line[0];
    sums[1] += line[1];
    sums[2] += line[2];
    sums[3] += line[3];
  }
  const Words sum = sums[0] + sums[1] + sums[2] + sums[3];
  return sum[0] + sum[1];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) return std::fprintf(stderr, "bench_read THREADS BYTES OUTxIN...\n"), 2;
  const auto threads = static_cast<size_t>(std::atoi(argv[1])), element = static_cast<size_t>(std::atoi(argv[2]));
  std::vector<Matrix> matrices;
  size_t total = 0;
  for (int i = 3; i < argc; ++i) {
    const std::string shape = argv[i];
    const size_t cross = shape.find('x');
    matrices.push_back(
        {total, std::stoul(shape.substr(0, cross)), std::stoul(shape.substr(cross + 1)) * element / 64 * 64});
    total += matrices.back().rows * matrices.back().row_bytes;
  }
  void* pages =
      mmap(nullptr, total + distance, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (pages == MAP_FAILED) return std::perror("mmap"), 1;
  madvise(pages, total, MADV_HUGEPAGE);
  auto* data = static_cast<char*>(pages);
  for (size_t i = 0; i < total; i += 4096) data[i] = 1;  // touches every page
  std::atomic<uint64_t> sink{0};
  const auto part = [&](size_t thread) {
    uint64_t sum = 0;
    for (const Matrix& m : matrices) {
      const size_t begin = m.rows * thread / threads, end = m.rows * (thread + 1) / threads;
      sum += read(data + m.first + begin * m.row_bytes, (end - begin) * m.row_bytes);
    }
    sink += sum;
  };
  const auto now = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  for (int passes = 0; std::cin >> passes;) {
    std::vector<double> times{now()};
    for (int pass = 0; pass < passes; ++pass) {
      std::vector<std::thread> others;
      for (size_t thread = 1; thread < threads; ++thread) others.emplace_back(part, thread);
      part(0);
      for (std::thread& other : others) other.join();
      times.push_back(now());
    }
    std::cout << nlohmann::json{{"times", times}}.dump() << std::endl;
  }
}
