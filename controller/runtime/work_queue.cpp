// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/work_queue.h"

#include <algorithm>

#include "controller/runtime/watch_backoff.h"

namespace pm::k8s {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds base_delay{5}, max_delay{60'000};

double seconds(std::chrono::steady_clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void WorkQueue::add(const Key& key) {
  std::lock_guard lock(mutex_);
  if (core_.add(key, Steady::now())) metrics_.queue_adds.Increment();
  metrics_.queue_depth.Set(static_cast<double>(core_.waiting()));
  changed_.notify_one();
}

void WorkQueue::add_after(const Key& key, milliseconds delay) {
  std::lock_guard lock(mutex_);
  core_.add_at(key, Steady::now() + delay);
  changed_.notify_one();  // a waiting worker may have to wake up earlier than it planned
}

milliseconds WorkQueue::add_backed_off(const Key& key) {
  std::lock_guard lock(mutex_);
  const milliseconds delay = exponential_delay(base_delay, core_.fail(key), max_delay);
  core_.add_at(key, Steady::now() + delay);
  metrics_.queue_retries.Increment();
  changed_.notify_one();
  return delay;
}

void WorkQueue::forget(const Key& key) {
  std::lock_guard lock(mutex_);
  core_.forget(key);
}

std::optional<Key> WorkQueue::take(std::stop_token stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const auto now = Steady::now();
    metrics_.queue_adds.Increment(core_.advance(now));
    if (const auto taken = core_.take(now)) {
      metrics_.queue_depth.Set(static_cast<double>(core_.waiting()));
      metrics_.queue_wait_seconds.Observe(seconds(now - taken->since));
      // This worker may have been the one that waited for the next delayed key: another must take over.
      if (core_.waiting() || core_.next_due()) changed_.notify_one();
      return taken->key;
    }
    const auto due = core_.next_due();
    const auto changed = [&] { return core_.waiting() > 0 || core_.next_due() != due; };
    if (due) {
      changed_.wait_until(lock, stop, *due, changed);
    } else {
      changed_.wait(lock, stop, changed);
    }
  }
  return {};
}

void WorkQueue::done(const Key& key) {
  std::lock_guard lock(mutex_);
  const auto now = Steady::now();
  const auto run = core_.running().find(key);
  if (run != core_.running().end()) metrics_.queue_work_seconds.Observe(seconds(now - run->second));
  core_.done(key, now);
  metrics_.queue_depth.Set(static_cast<double>(core_.waiting()));
  changed_.notify_one();
}

void WorkQueue::sample() {
  std::lock_guard lock(mutex_);
  const auto now = Steady::now();
  double sum = 0, longest = 0;
  for (const auto& [key, since] : core_.running()) {
    sum += seconds(now - since);
    longest = std::max(longest, seconds(now - since));
  }
  metrics_.queue_unfinished_seconds.Set(sum);
  metrics_.queue_longest_seconds.Set(longest);
}

milliseconds WorkQueue::longest_run() const {
  std::lock_guard lock(mutex_);
  milliseconds longest{0};
  for (const auto& [key, since] : core_.running())
    longest = std::max(longest, std::chrono::duration_cast<milliseconds>(Steady::now() - since));
  return longest;
}

}  // namespace pm::k8s
