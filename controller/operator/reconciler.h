// The only part of the operator that does I/O: takes snapshots from stores, asks loading pods how far they are, sends what the step machine
// wants, tells people.
#pragma once
#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "controller/core/clock.h"
#include "controller/operator/step.h"
#include "controller/runtime/controller.h"
#include "controller/runtime/event_recorder.h"

namespace pm::op {

/// Asks the ops port of a pod for /status.
class StatusProbe {
 public:
  virtual ~StatusProbe() = default;
  /// The JSON, or nothing when there is no good answer within a second. Thread-safe.
  virtual std::optional<Json> ask(const std::string& pod_ip) = 0;
};

/// Over plain HTTP to port 8001: at most 1 s and 64 KiB.
class HttpStatusProbe final : public StatusProbe {
 public:
  std::optional<Json> ask(const std::string& pod_ip) override;
};

/// The primary collection: all ParallelModels, or those of one namespace.
k8s::WatchOptions parallel_models(const std::string& ns);

struct ReconcilerOptions {
  Settings settings;
  std::string ns;                       ///< children are watched here; "": everywhere
  bool read_nodes = true;               ///< false where the controller may not read nodes
};

/// Usage: Controller controller("parallelmodel", parallel_models(ns), context); Reconciler reconciler(controller, ...);
/// controller.run([&](const k8s::Key& key) { return reconciler.reconcile(key); }, stop).
class Reconciler {
 public:
  /// Declares the watches of children (and nodes) on `controller`. Everything given must outlive the reconciler.
  Reconciler(k8s::Controller& controller, StatusProbe& probe, k8s::EventRecorder& events, const k8s::Clock& clock, prometheus::Registry& registry,
             ReconcilerOptions options);

  /// One pass. Thread-safe for different keys.
  k8s::Result reconcile(const k8s::Key&);

 private:
  struct Answer { std::chrono::steady_clock::time_point asked; std::optional<Json> json; };

  Snapshot snapshot(const k8s::Key&);
  void ask_pods(Snapshot&);
  std::optional<Json> ask(const Json& pod);
  std::shared_ptr<Memo> memo(const k8s::Key&, bool there);
  std::map<std::string, std::map<std::string, int64_t>> devices_used() const;
  std::vector<k8s::Key> concerned_by(const Json& node) const;
  void tell(const Json& model, const std::vector<Event>&);

  k8s::Controller& controller_;
  StatusProbe& probe_;
  k8s::EventRecorder& recorder_;
  const k8s::Clock& clock_;
  const ReconcilerOptions options_;
  prometheus::Family<prometheus::Counter>& occurrences_;
  const k8s::Store models_, pods_, config_maps_, services_, budgets_;
  std::optional<k8s::Store> nodes_;
  std::mutex mutex_;
  std::map<std::string, Answer> answers_;   ///< pod uid -> last answer of its ops port
  std::map<k8s::Key, std::shared_ptr<Memo>> memos_;   ///< of every ParallelModel that is there
};

}  // namespace pm::op
