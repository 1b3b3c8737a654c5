// SPDX-License-Identifier: Apache-2.0
// Prometheus metrics with the prefix parallelmodel_, with vLLM's meanings where vLLM has the metric (metric_names.h).
#pragma once
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/comm/membership/status_table.h"
#include "worker/engine/engine.h"
#include "worker/server/monitoring/memory_report.h"

namespace pm::server {

/// Histograms and counters of requests. Thread-safe.
class RequestMetrics {
 public:
  RequestMetrics();
  ~RequestMetrics();
  RequestMetrics(const RequestMetrics&) = delete;
  RequestMetrics& operator=(const RequestMetrics&) = delete;
  void queued(double seconds);       ///< from submission to the first step
  void prefilled(double seconds);    ///< from the first step to the first token
  void first_token(double seconds);  ///< from the request's arrival over HTTP
  void next_token(double seconds);   ///< since the token before
  /// reason: stop, length, cancelled, failed. `seconds` since arrival.
  void finished(const std::string& reason, double seconds);
  /// reason: an ApiError's code (queue_full, invalid_value, draining, ...).
  void rejected(const std::string& reason);
  /// Returns the metrics in the text exposition format.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Histograms of engine steps, observed once a step on the engine's thread. Thread-safe.
class StepMetrics {
 public:
  StepMetrics();
  ~StepMetrics();
  StepMetrics(const StepMetrics&) = delete;
  StepMetrics& operator=(const StepMetrics&) = delete;
  void observe(const engine::StepTimes&);
  /// Returns the metrics in the text exposition format.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Counters of rank 0 for one collective operation since its start.
struct Collective {
  std::string op;
  int64_t calls = 0, bytes = 0;
  double seconds = 0;
};

/// What a replica takes at once: running sequences, and waiting requests.
struct Capacity {
  int64_t concurrency = 64, queue = 256;
};

/// Returns the engine's metrics: running and waiting sequences, KV cache, prefix cache and token counters; and
/// saturation, the largest of the shares of queue, KV cache and concurrency in use.
std::string engine_metrics(const engine::Statistics&, const Capacity&);
/// Returns the adapters that requests have, running or waiting, for gateways that prefer a replica where an adapter is
/// in use. `now` is the value, by which they know the newest line.
std::string adapter_metrics(const std::vector<std::string>& in_use, int64_t slots,
                            std::chrono::system_clock::time_point now);
/// Returns how many images of prompts were looked up among those whose rows are kept, and how many were found.
std::string image_metrics(int64_t queries, int64_t hits);
/// Returns calls, bytes and seconds of rank 0's collectives by operation, without operations that were never called.
std::string collective_metrics(const std::vector<Collective>&);
/// Memory, load, steps and heartbeat of every rank of the table, and plan_info.
std::string rank_metrics(const Plan&, comm::StatusTable*, SteadyTime now);
/// Returns `own` followed by the families of `other` that `own` lacks, because a family may appear only once.
std::string merge_metrics(const std::string& own, const std::string& other);

}  // namespace pm::server
