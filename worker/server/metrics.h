// Prometheus metrics, prefix parallelmodel_, names and meanings as vLLM's where vLLM has them.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/comm/status.h"
#include "worker/engine/request.h"
#include "worker/server/memory_report.h"

namespace pm::server {

/// What happened to requests: histograms and counters. Thread-safe.
class RequestMetrics {
 public:
  RequestMetrics();
  ~RequestMetrics();
  RequestMetrics(const RequestMetrics&) = delete;
  RequestMetrics& operator=(const RequestMetrics&) = delete;
  void queued(double seconds);         ///< from submission to the first step
  void prefilled(double seconds);      ///< from the first step to the first token
  void first_token(double seconds);    ///< from the request's arrival over HTTP
  void next_token(double seconds);     ///< since the token before
  /// reason: stop, length, cancelled, failed. `seconds` since arrival.
  void finished(const std::string& reason, double seconds);
  /// reason: an ApiError's code (queue_full, invalid_value, draining, ...).
  void rejected(const std::string& reason);
  /// Exposition text.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What steps take: histograms. Called on the engine's thread once a step; thread-safe.
class StepMetrics {
 public:
  StepMetrics();
  ~StepMetrics();
  StepMetrics(const StepMetrics&) = delete;
  StepMetrics& operator=(const StepMetrics&) = delete;
  void observe(const engine::StepTimes&);
  /// Exposition text.
  std::string text() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// What rank 0 has done of one collective operation since its start.
struct Collective {
  std::string op;
  int64_t calls = 0, bytes = 0;
  double seconds = 0;
};

/// Running, waiting, KV use, prefix cache and token counters of the engine.
std::string engine_metrics(const engine::Statistics&);
/// Calls, bytes and seconds of rank 0's collectives by operation; those never called are left out.
std::string collective_metrics(const std::vector<Collective>&);
/// Memory, load, steps and heartbeat of every rank of the board, and plan_info.
std::string rank_metrics(const Plan&, comm::StatusBoard*, SteadyTime now);
/// `own` and those families of `other` that `own` lacks: a family may appear once only in an exposition.
std::string merge_metrics(const std::string& own, const std::string& other);

}  // namespace pm::server
