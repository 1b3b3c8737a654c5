// SPDX-License-Identifier: Apache-2.0
// Watches collections, maps their changes to keys of one primary resource, and calls `reconcile` for each key, never
// twice at once.
#pragma once
#include <prometheus/registry.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/clock.h"
#include "controller/runtime/store.h"

namespace pm::k8s {

/// The result of a reconcile.
/// - Result{}: done until something changes.
/// - requeue_after: reconcile again after this time, or earlier after a change. Resets the back-off.
/// - error: it failed; the key is tried again after a back-off of its own (5 ms x 2^n, at most 60 s).
/// - error with terminal: a retry cannot succeed; the key is reconciled again only after a change.
/// An exception out of reconcile counts as a panic and is treated as an error.
struct Result {
  std::optional<std::chrono::milliseconds> requeue_after;
  std::optional<std::string> error;
  bool terminal = false;
};

/// Called on worker threads; two keys run at once, one key never does. The object may be gone from the stores: that is
/// its deletion.
using Reconcile = std::function<Result(const Key&)>;

/// One watched collection.
struct WatchOptions {
  Resource resource;
  std::string ns;  ///< "": all namespaces (or the controller's own restriction)
  std::string
      label_selector;  ///< "parallelmodel.dev/name": equality and existence terms, comma-separated; "": everything
  StoreOptions store;
};

/// The dependencies of a controller; all must outlive it.
struct ControllerContext {
  Api& api;
  WatchApi& watches;
  const Clock& clock;
  prometheus::Registry& registry;
};

/// Usage: construct, `store = owns(...)` for each collection, then run(reconcile, stop) once.
class Controller {
 public:
  /// `name` labels metrics and log lines.
  Controller(std::string name, WatchOptions primary, ControllerContext context);
  ~Controller();

  /// The collection of primary objects; each of its changes queues the object's own key. In every collection a change
  /// of only the resourceVersion and of fields that the store drops queues nothing.
  Store primary() const;
  /// Each change of a primary object also queues the keys that `map` names. It runs on the watch's thread: only read
  /// stores. Call it before run().
  void relates(std::function<std::vector<Key>(const Json&)> map);
  /// A collection of children; each change queues the key of the controlling owner when that is of the primary's kind
  /// and group.
  Store owns(WatchOptions);
  /// Any other collection; `map` names the primary keys that a changed object concerns. It runs on the watch's thread:
  /// only read stores.
  Store watches(WatchOptions, std::function<std::vector<Key>(const Json&)> map);

  /// The Api that reconcile must write through. It remembers the resourceVersion of each successful write to a watched
  /// collection; a key is not reconciled again before its stores have caught up with what was written for it, so a
  /// reconcile always sees its own writes.
  Api& api();

  /// Queues a key now; for tests and timers.
  void enqueue(const Key&);

  /// Starts all watches, waits until every store is synced, then reconciles on `workers` threads until `stop`. Blocks.
  /// After a stop, running reconciles are finished, the rest of the queue is dropped.
  void run(Reconcile reconcile, std::stop_token stop, int workers = 2);

  /// For /readyz: every store is synced.
  bool ready() const;
  /// For /healthz: no reconcile has been running for longer than five minutes. Never depends on the API server.
  bool healthy() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace pm::k8s
