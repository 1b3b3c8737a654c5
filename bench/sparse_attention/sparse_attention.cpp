// SPDX-License-Identifier: Apache-2.0
// Times one layer's attention of the worker for a text of LENGTH tokens: `bench_sparse_attention LENGTH ROUNDS
// THREADS`. It prints the best of the rounds in seconds, and the most memory that an operation took beside its inputs:
// {"window": [s, bytes], "blocks": [s, bytes], "dense": [s, bytes]}.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "worker/ops/sparse_attention.h"

namespace {

constexpr int64_t heads = 12, head_dim = 64, window_side = 256, block = 64, random_blocks = 3;

/// Counts the bytes that are allocated, and the most at once.
class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    struct Held {
      void* memory;
      CountingAllocator* owner;
      int64_t bytes;
    };
    auto* held = new Held{c10::alloc_cpu(bytes), this, static_cast<int64_t>(bytes)};
    now_ += held->bytes;
    most_ = std::max(most_, now_);
    const auto give_back = [](void* context) {
      auto* one = static_cast<Held*>(context);
      one->owner->now_ -= one->bytes;
      c10::free_cpu(one->memory);
      delete one;
    };
    return {held->memory, held, give_back, at::Device(at::kCPU)};
  }
  void copy_data(void* to, const void* from, size_t bytes) const override { default_copy_data(to, from, bytes); }
  void reset() { most_ = now_; }
  /// Returns the most bytes since reset() beyond those before it.
  int64_t most_since(int64_t before) const { return most_ - before; }
  int64_t now() const { return now_; }

 private:
  int64_t now_ = 0, most_ = 0;  // of one thread: operations allocate in the caller's
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_sparse_attention LENGTH ROUNDS THREADS\n");
    return 2;
  }
  const int64_t length = std::atoll(argv[1]), rounds = std::atoll(argv[2]);
  at::set_num_threads(std::atoi(argv[3]));
  static CountingAllocator allocator;
  c10::SetCPUAllocator(&allocator, /*priority=*/100);
  const auto drawn = [&] { return at::randn({length, heads, head_dim}); };
  const at::Tensor q = drawn(), k = drawn(), v = drawn();
  pm::ops::StepSequences sequences;
  sequences.spans = {{.first = 0, .tokens = length, .context = 0, .keys = length, .key_row = 0, .blocks = {}}};
  const std::vector<pm::ops::SequenceColumns> columns{{length, {}, {0}}};
  const pm::ops::GlobalRows global{drawn().narrow(0, 0, 1), drawn(), drawn()};
  const double scale = 0.125;
  const std::pair<const char*, std::function<at::Tensor()>> runs[] = {
      {"window",
       [&] {
         return pm::ops::sparse_attention(q, k, v, global, sequences.spans, columns,
                                          {scale, pm::ops::SlidingWindow{window_side}});
       }},
      {"blocks",
       [&] {
         return pm::ops::sparse_attention(q, k, v, {}, sequences.spans, columns,
                                          {scale, pm::ops::BlockSparse{block, random_blocks}});
       }},
      {"dense", [&] { return pm::ops::ragged_attention(q, k, v, sequences, {.scale = scale, .causal = false}); }},
  };
  std::printf("{");
  for (const auto& [name, run] : runs) {
    double best = 1e9;
    int64_t bytes = 0;
    for (int64_t round = 0; round < rounds; ++round) {
      const int64_t before = allocator.now();
      allocator.reset();
      const auto start = std::chrono::steady_clock::now();
      const at::Tensor out = run();
      best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      bytes = allocator.most_since(before);
    }
    std::printf("%s\"%s\": [%.6f, %ld]", &runs[0].first == &name ? "" : ", ", name, best, static_cast<long>(bytes));
  }
  std::printf("}\n");
}
