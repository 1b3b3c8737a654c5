// The queue between watches and workers: QueueCore behind a lock, with a real clock and metrics.
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

  /// Waits for a key; nothing after a stop. The key must be given back with done().
  std::optional<Key> take(std::stop_token stop);
  void done(const Key&);

  /// Sets the gauges of unfinished work; to be called now and then.
  void sample();
  /// How long the longest run lasts already.
  std::chrono::milliseconds longest_run() const;

 private:
  using Steady = std::chrono::steady_clock;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  QueueCore core_;
  ControllerMetrics& metrics_;
};

}  // namespace pm::k8s
