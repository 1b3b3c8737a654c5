// SPDX-License-Identifier: Apache-2.0
// Tests the thread pool: each chunk runs once, with several callers at a time, with and without sleeping workers.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "tests/unit/worker/ops/reference.h"
#include "worker/ops/attention.h"
#include "worker/ops/cpu/kernels/kernels.h"
#include "worker/ops/cpu/thread_pool.h"
#include "worker/ops/fused.h"
#include "worker/ops/linear.h"

namespace pm::ops {
namespace {

TEST(ThreadPool, RunsEveryChunkOnceHoweverManyThereAre) {
  ThreadPool thread_pool(4);
  for (int64_t chunks : {0, 1, 2, 3, 7, 1000}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<std::atomic<int>> seen(static_cast<size_t>(chunks));
      thread_pool.parallel_for(chunks, [&](int64_t i) { ++seen[static_cast<size_t>(i)]; });
      for (const auto& count : seen) ASSERT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, WritesOfAllChunksAreSeenWhenTheLoopReturns) {
  ThreadPool thread_pool(3);
  std::vector<int64_t> plain(64);
  for (int64_t round = 1; round <= 20000; ++round) {
    thread_pool.parallel_for(64, [&](int64_t i) { plain[static_cast<size_t>(i)] += i + round; });
  }
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(plain[static_cast<size_t>(i)], 20000 * i + 20000 * 20001 / 2);
}

TEST(ThreadPool, WorkersThatFellAsleepComeBack) {
  ThreadPool thread_pool(2);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than workers spin
    std::atomic<bool> other{false};
    const auto caller = std::this_thread::get_id();
    // The caller's chunk ends only when a worker has run the other one; without a worker this would never return.
    thread_pool.parallel_for(2, [&](int64_t) {
      if (std::this_thread::get_id() != caller) other = true;
      while (!other) std::this_thread::yield();
    });
    EXPECT_TRUE(other);
  }
}

TEST(ThreadPool, FollowsTheThreadsNumberAndServesSeveralCallersAtOnce) {
  std::vector<std::thread> callers;
  std::atomic<int64_t> sum{0};
  for (int threads = 1; threads <= 4; ++threads) {
    callers.emplace_back([&, threads] {
      at::get_num_threads();  // the first call in a thread adopts the number that any thread set last
      at::set_num_threads(threads);
      EXPECT_EQ(thread_pool().threads(), threads);
      for (int round = 0; round < 500; ++round) thread_pool().parallel_for(17, [&](int64_t i) { sum += i; });
      at::set_num_threads(2);
      EXPECT_EQ(thread_pool().threads(), 2);
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT_EQ(sum, 4 * 500 * 136);
}

/// Runs `run` on one, two, three and five threads, each in a thread of its own, concurrently.
template <typename Run>
void expect_same_bits(Run&& run) {
  const std::vector<int> numbers{1, 2, 3, 5};
  std::vector<at::Tensor> results(numbers.size());
  std::vector<std::thread> callers;
  for (size_t i = 0; i < numbers.size(); ++i) {
    callers.emplace_back([&, i] {
      at::get_num_threads();  // as above
      at::set_num_threads(numbers[i]);
      results[i] = run();
    });
  }
  for (auto& caller : callers) caller.join();
  for (const at::Tensor& result : results) EXPECT_TRUE(at::equal(result, results[0]));
}

TEST(Threads, GiveTheSameBitsOfProducts) {
  at::manual_seed(1);
  for (at::ScalarType type : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (int64_t rows : {1, 3, 8}) {
      const at::Tensor w = at::randn({4001, 257}).to(type), b = at::randn({4001}).to(type),
                       x = reference::rounded_for(type, at::randn({rows, 257}));
      expect_same_bits([&] { return ops::linear(x, w, b); });
      EXPECT_TRUE(at::allclose(ops::linear(x, w, b), at::addmm(b.to(at::kFloat), x, w.to(at::kFloat).t()), 1e-4, 1e-4));
    }
  }
}

TEST(Threads, GiveTheSameBitsOfAttentionToLongAndShortSequences) {
  at::manual_seed(2);
  const int64_t heads = 12, kv_heads = 1, d = 32, blocks = 200;  // 12 heads of one kv head: several kernel calls
  at::Tensor k_cache = at::randn({blocks, kv_heads, block_tokens, d}).to(at::kBFloat16),
             v_cache = at::randn_like(k_cache);
  std::vector<int32_t> table(static_cast<size_t>(blocks));
  for (size_t i = 0; i < table.size(); ++i) table[i] = static_cast<int32_t>(i * 7 % table.size());
  std::vector<SequenceSpan> spans;
  for (int64_t keys : {3000, 1, 512, 513, 40}) {
    spans.push_back({.first = static_cast<int64_t>(spans.size()),
                     .tokens = 1,
                     .context = keys - 1,
                     .keys = keys,
                     .key_row = 0,
                     .blocks = table});
  }
  const at::Tensor q = at::randn({static_cast<int64_t>(spans.size()), heads, d}).to(at::kBFloat16).to(at::kFloat);
  for (int64_t window : {0, 700}) {
    const AttentionOptions options{.scale = 0.2, .window = window};
    expect_same_bits([&] { return paged_attention(q, k_cache, v_cache, {.spans = spans}, options); });
    const at::Tensor got = paged_attention(q, k_cache, v_cache, {.spans = spans}, options);
    const at::Tensor keys = k_cache.index_select(0, at::tensor(table, at::kLong)).reshape({-1, d}).to(at::kDouble),
                     values = v_cache.index_select(0, at::tensor(table, at::kLong)).reshape({-1, d}).to(at::kDouble);
    for (const SequenceSpan& span : spans) {
      const int64_t first = window > 0 ? std::max<int64_t>(0, span.keys - window) : 0;
      const at::Tensor weights =
          at::softmax(at::mm(q[span.first].to(at::kDouble), keys.narrow(0, first, span.keys - first).t()) * 0.2, 1);
      EXPECT_LT((got[span.first].to(at::kDouble) - at::mm(weights, values.narrow(0, first, span.keys - first)))
                    .abs()
                    .max()
                    .item<double>(),
                kernels().bf16_products ? 4e-3 : 5e-6)
          << span.keys << " keys, window " << window;
    }
  }
}

TEST(Threads, GiveTheSameBitsOfNormsRotationsAndGates) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({300, 514}), weight = at::randn({514});
  expect_same_bits([&] { return layer_norm(x, weight, weight, 1e-5); });
  expect_same_bits([&] { return rms_norm(x, weight, 1e-5); });
  expect_same_bits([&] { return silu_and_mul(x); });
  const at::Tensor positions = at::arange(300, at::kLong), frequencies = at::rand({64}),
                   heads = at::randn({300, 4, 130});
  expect_same_bits([&] { return rotate(heads, rotary_angles(positions, frequencies, 1), true); });
}

}  // namespace
}  // namespace pm::ops
