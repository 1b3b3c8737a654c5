// SPDX-License-Identifier: Apache-2.0
// Declares the reconciler: it takes snapshots of stores and polled pods, sends the requests of the state machine, and
// records Events.
#pragma once
#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "controller/core/clock.h"
#include "controller/operator/reconcile/reconcile_step.h"
#include "controller/operator/shell/cost_limiter.h"
#include "controller/operator/shell/status_poller.h"
#include "controller/runtime/controller.h"
#include "controller/runtime/event_recorder.h"

namespace pm::op {

/// The primary collection: all ParallelModels, or those of one namespace.
k8s::WatchOptions parallel_models(const std::string& ns);

struct ReconcilerOptions {
  Settings settings;
  std::string ns;          ///< the namespace of watched children; "": all
  bool read_nodes = true;  ///< false where the controller may not read nodes
};

/// Usage: Controller controller("parallelmodel", parallel_models(ns), context); Reconciler reconciler(controller, ...);
/// controller.run([&](const k8s::Key& key) { return reconciler.reconcile(key); }, stop).
class Reconciler {
 public:
  /// Declares the watches of children and nodes on `controller`. All arguments must outlive the reconciler.
  Reconciler(k8s::Controller& controller, StatusProbe& probe, k8s::EventRecorder& events, const k8s::Clock& clock,
             prometheus::Registry& registry, ReconcilerOptions options);

  /// Runs one reconcile. Thread-safe for different keys.
  k8s::Result reconcile(const k8s::Key&);

 private:
  Snapshot snapshot(const k8s::Key&);
  void poll_pods(Snapshot&);
  std::shared_ptr<ModelCache> cache(const k8s::Key&, bool there);
  std::map<std::string, std::map<std::string, int64_t>> devices_used() const;
  std::map<std::string, std::map<std::string, std::vector<int64_t>>> memory_held(const k8s::Key& but) const;
  std::vector<k8s::Key> concerned_by(const Json& node) const;
  std::vector<k8s::Key> routing_to(const Json& model) const;
  void record_events(const Json& model, const std::vector<Event>&);

  k8s::Controller& controller_;
  k8s::EventRecorder& recorder_;
  const k8s::Clock& clock_;
  const ReconcilerOptions options_;
  prometheus::Family<prometheus::Counter>& occurrences_;
  prometheus::Family<prometheus::Histogram>& startup_seconds_;
  const k8s::Store models_, pods_, config_maps_, services_, budgets_;
  std::optional<k8s::Store> nodes_;
  std::mutex mutex_;
  std::map<k8s::Key, std::shared_ptr<ModelCache>> caches_;  ///< of every existing ParallelModel
  CostLimiter
      pod_events_limiter_;  ///< each list of one pod's Events has the API server read all Events of its namespace
  StatusPoller poller_;
};

}  // namespace pm::op
