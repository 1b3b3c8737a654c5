// SPDX-License-Identifier: Apache-2.0
// Exports the metrics of controller-runtime under the same names and labels, so that its dashboards work.
#pragma once
#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <memory>
#include <string>

namespace pm::k8s {

/// One per controller; the label `controller` (and `name` of the queue) is bound at construction. Thread-safe.
/// Source of names: controller-runtime pkg/internal/controller/metrics and pkg/metrics.
struct ControllerMetrics {
  ControllerMetrics(prometheus::Registry &, const std::string &controller);

  enum class Outcome { Success, Requeue, RequeueAfter, Error };
  void finished(Outcome, double seconds);  ///< controller_runtime_reconcile_total and _time_seconds

  prometheus::Counter &errors, &terminal_errors, &panics;
  prometheus::Gauge &active_workers, &max_concurrent;
  prometheus::Counter &queue_adds, &queue_retries;
  prometheus::Gauge &queue_depth, &queue_unfinished_seconds, &queue_longest_seconds;
  prometheus::Histogram &queue_wait_seconds, &queue_work_seconds;

 private:
  prometheus::Histogram &seconds_;
  prometheus::Counter *totals_[4];
};

/// One per watched resource: how often the collection was listed and watched, and how it went.
struct WatchMetrics {
  WatchMetrics(prometheus::Registry &, const std::string &controller, const std::string &resource);
  prometheus::Counter &lists, &watches, &errors, &events;
  prometheus::Gauge &objects;
};

}  // namespace pm::k8s
