// SPDX-License-Identifier: Apache-2.0
// The thread pool of the CPU kernels.
#include "worker/ops/cpu/thread_pool.h"

#include <ATen/Parallel.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <chrono>
#include <memory>

namespace pm::ops {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto spin_time = std::chrono::microseconds(60);  // then a futex

void pause() {
#ifdef __x86_64__
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

/// Spins until `done` or until the spin time is over; returns whether it is done.
template <typename Done>
bool spin(Done&& done) {
  for (int i = 0; i < 64; ++i) {
    if (done()) return true;
    pause();
  }
  for (const auto end = Clock::now() + spin_time; Clock::now() < end;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      pause();
    }
  }
  return done();
}

uint32_t chunks_of(uint64_t left) { return static_cast<uint32_t>(left); }

}  // namespace

ThreadPool::ThreadPool(int threads) {
  for (int i = 1; i < threads; ++i) workers_.emplace_back([this] { worker_loop(); });
}

ThreadPool::~ThreadPool() {
  stop_ = true;
  ++epoch_;
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

/// Takes a chunk of the current loop and runs it; returns false when none is left.
bool ThreadPool::run_one() {
  uint64_t left = left_.load(std::memory_order_acquire);
  do {
    if (chunks_of(left) == 0) return false;
  } while (!left_.compare_exchange_weak(left, left - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  // The loop cannot end before this chunk, so that loop_ stays valid; the loop number in the upper half keeps a late
  // worker from taking a chunk of another loop.
  loop_.call(loop_.body, loop_.chunks - chunks_of(left));
  if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  return true;
}

void ThreadPool::run_loop(const Loop& loop) {
  loop_ = loop;
  unfinished_.store(static_cast<uint32_t>(loop.chunks), std::memory_order_relaxed);
  const uint64_t number = (left_.load(std::memory_order_relaxed) >> 32) + 1;
  left_.store(number << 32 |
              static_cast<uint32_t>(
                  loop.chunks));  // sequentially consistent with the next line, like the two operations of a sleeper
  if (sleepers_.load() > 0) {
    ++epoch_;
    epoch_.notify_all();
  }
  while (run_one()) {
  }
  if (spin([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  for (uint32_t still = unfinished_.load(std::memory_order_acquire); still != 0;
       still = unfinished_.load(std::memory_order_acquire))
    unfinished_.wait(still);
}

void ThreadPool::worker_loop() {
  const auto called = [&] {
    return chunks_of(left_.load(std::memory_order_acquire)) > 0 || stop_.load(std::memory_order_relaxed);
  };
  for (;;) {
    while (run_one()) {
    }
    if (stop_) return;
    if (spin(called)) continue;
    ++sleepers_;
    const uint32_t epoch = epoch_.load();
    if (chunks_of(left_.load()) == 0 && !stop_) epoch_.wait(epoch);
    --sleepers_;
  }
}

ThreadPool& thread_pool() {
  thread_local std::unique_ptr<ThreadPool> own;
  const int threads = std::max(1, at::get_num_threads());
  if (!own || own->threads() != threads) {
    own.reset();
    own = std::make_unique<ThreadPool>(threads);
  }
  return *own;
}

}  // namespace pm::ops
