// SPDX-License-Identifier: Apache-2.0
// The thread-safe queue between watches and workers: QueueCore with a lock, a real clock and metrics.
#pragma once
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stop_token>

#include "controller/runtime/metrics.h"
#include "controller/runtime/queue_core.h"

namespace pm::k8s {

/// Thread-safe.
class WorkQueue {
 public:
  explicit WorkQueue(ControllerMetrics& metrics) : metrics_(metrics) {}

  void add(const Key&);
  void add_after(const Key&, std::chrono::milliseconds);
  /// After a failure: 5 ms x 2^n, at most 60 s, n the failures since the last forget(). Returns the delay.
  std::chrono::milliseconds add_backed_off(const Key&);
  void forget(const Key&);

  /// Waits for a key; returns nothing after a stop. The caller must call done() with the key.
  std::optional<Key> take(std::stop_token stop);
  void done(const Key&);

  /// Sets the gauges of unfinished work; must be called periodically.
  void sample();
  /// Returns the duration of the longest current run.
  std::chrono::milliseconds longest_run() const;

 private:
  using Steady = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  QueueCore core_;
  ControllerMetrics& metrics_;
};

}  // namespace pm::k8s
