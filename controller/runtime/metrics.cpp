// SPDX-License-Identifier: Apache-2.0
#include "controller/runtime/metrics.h"

namespace pm::k8s {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::BuildHistogram;
using Labels = prometheus::Labels;
using Buckets = prometheus::Histogram::BucketBoundaries;

const Buckets reconcile_buckets{0.005, 0.01, 0.025, 0.05, 0.1,  0.15, 0.2,  0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
                                0.7,   0.8,  0.9,   1.0,  1.25, 1.5,  1.75, 2.0,  2.5, 3.0,  3.5, 4.0,  4.5, 5,
                                6,     7,    8,     9,    10,   15,   20,   25,   30,  40,   50,  60};
const Buckets queue_buckets{1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1, 10, 100, 1000};

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help, const Labels& labels) {
  return BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}
prometheus::Gauge& gauge(prometheus::Registry& registry, const char* name, const char* help, const Labels& labels) {
  return BuildGauge().Name(name).Help(help).Register(registry).Add(labels);
}
prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help,
                                 const Labels& labels, const Buckets& buckets) {
  return BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}
Labels by(const std::string& controller) { return {{"controller", controller}}; }
Labels queue(const std::string& controller) { return {{"name", controller}, {"controller", controller}}; }

}  // namespace

ControllerMetrics::ControllerMetrics(prometheus::Registry& registry, const std::string& controller)
    : errors(counter(registry, "controller_runtime_reconcile_errors_total", "Reconciles that failed.", by(controller))),
      terminal_errors(counter(registry, "controller_runtime_terminal_reconcile_errors_total",
                              "Reconciles that failed until a change.", by(controller))),
      panics(counter(registry, "controller_runtime_reconcile_panics_total", "Reconciles that threw.", by(controller))),
      active_workers(
          gauge(registry, "controller_runtime_active_workers", "Workers that reconcile now.", by(controller))),
      max_concurrent(gauge(registry, "controller_runtime_max_concurrent_reconciles", "Workers.", by(controller))),
      queue_adds(counter(registry, "workqueue_adds_total", "Additions to the queue.", queue(controller))),
      queue_retries(counter(registry, "workqueue_retries_total", "Additions after a failure.", queue(controller))),
      queue_depth(gauge(registry, "workqueue_depth", "Keys that wait.", queue(controller))),
      queue_unfinished_seconds(gauge(registry, "workqueue_unfinished_work_seconds",
                                     "Sum of the ages of running reconciles.", queue(controller))),
      queue_longest_seconds(gauge(registry, "workqueue_longest_running_processor_seconds",
                                  "Age of the longest running reconcile.", queue(controller))),
      queue_wait_seconds(histogram(registry, "workqueue_queue_duration_seconds", "Time from addition to start.",
                                   queue(controller), queue_buckets)),
      queue_work_seconds(histogram(registry, "workqueue_work_duration_seconds", "Time from start to end.",
                                   queue(controller), queue_buckets)),
      seconds_(histogram(registry, "controller_runtime_reconcile_time_seconds", "Time of a reconcile.", by(controller),
                         reconcile_buckets)) {
  const char* results[] = {"success", "requeue", "requeue_after", "error"};
  for (int i = 0; i < 4; ++i) {
    totals_[i] = &counter(registry, "controller_runtime_reconcile_total", "Reconciles by result.",
                          {{"controller", controller}, {"result", results[i]}});
  }
}

void ControllerMetrics::finished(Outcome outcome, double seconds) {
  totals_[static_cast<int>(outcome)]->Increment();
  seconds_.Observe(seconds);
}

WatchMetrics::WatchMetrics(prometheus::Registry& registry, const std::string& controller, const std::string& resource)
    : lists(counter(registry, "reflector_lists_total", "Pages of lists that were requested.",
                    {{"controller", controller}, {"resource", resource}})),
      watches(counter(registry, "reflector_watches_total", "Watches started.",
                      {{"controller", controller}, {"resource", resource}})),
      errors(counter(registry, "reflector_errors_total", "Lists and watches that failed.",
                     {{"controller", controller}, {"resource", resource}})),
      events(counter(registry, "reflector_events_total", "Events received.",
                     {{"controller", controller}, {"resource", resource}})),
      objects(gauge(registry, "reflector_store_objects", "Objects in the store.",
                    {{"controller", controller}, {"resource", resource}})) {}

}  // namespace pm::k8s
