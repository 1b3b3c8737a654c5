// SPDX-License-Identifier: Apache-2.0
// Simulates one operator process without threads, with the real stores, guard of own writes and state machine. Every
// point at which something may fail between it and the API server is a call of its own.
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "controller/operator/children/model_cache.h"
#include "controller/runtime/own_writes.h"
#include "controller/runtime/store.h"
#include "fake_operator.h"

namespace pm::op::test {

inline const char* const collections[] = {"parallelmodels",       "pods", "configmaps", "services",
                                          "poddisruptionbudgets", "nodes"};

class OperatorProcess {
 public:
  /// Lists every collection, unless `listed` is false; then list() does one at a time. `cache` is that of an earlier
  /// process, or a new one.
  explicit OperatorProcess(FakeCluster& cluster, bool listed = true,
                           std::shared_ptr<ModelCache> cache = std::make_shared<ModelCache>());
  /// Copies a process at the same point, for a copy of its cluster. Its own writes must be visible to it.
  OperatorProcess(const OperatorProcess& other, FakeCluster& cluster);
  OperatorProcess(const OperatorProcess&) = delete;

  std::optional<k8s::WallTime> wake() const { return wake_; }
  bool wanted() const { return wanted_; }
  const ModelCache& cache() const { return *cache_; }
  /// Returns true between two reconciles when its stores match the cluster.
  bool knows_all();

  /// Receives the list with which a watch begins, or begins again after its events were lost.
  void list(const std::string& plural);
  /// Delivers the next event of a watch `times` times. Returns false when there is none.
  bool deliver(const std::string& plural, int times = 1);
  /// Counts the delivered and the pending events of a collection.
  size_t delivered(const std::string& plural) const { return streams_.at(plural).next; }
  size_t behind(const std::string& plural) const;

  /// Returns true when a reconcile runs, or is due and own writes are visible.
  bool wants();
  /// Runs up to the next request; begins a reconcile when none runs. Returns false when the reconcile ended instead.
  bool prepare();
  /// Sends the request that prepare() stopped at and handles its response.
  void finish(CrashPoint crash_point = CrashPoint::None);
  bool between() const { return state_.has_value(); }
  const k8s::Request& request() const { return *state_->sent; }
  int requests = 0;

 private:
  struct Stream {
    k8s::StoreWriter writer;
    size_t next = 0;  ///< index of the next event of the cluster
  };
  Snapshot look() const;
  void end(Done);
  void follow();

  FakeCluster& cluster_;
  k8s::OwnWrites own_;
  std::map<std::string, Stream> streams_;
  const k8s::Key key_;
  bool wanted_ = true;
  std::optional<k8s::WallTime> wake_;
  std::shared_ptr<ModelCache> cache_;
  std::optional<ReconcileState> state_;  ///< of a running reconcile, with its next request
  Snapshot seen_;
};

}  // namespace pm::op::test
