// SPDX-License-Identifier: Apache-2.0
// Declares the reconcile as a pure state machine: (state, snapshot, response) -> the next request, or done. It sends
// one request at a time, so every point at which the process may crash is a value that tests can visit. After a crash
// the next reconcile starts from a fresh snapshot.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "controller/operator/status/model_status.h"

namespace pm::op {

/// The state of one reconcile beyond its snapshot. A new reconcile starts with ReconcileState{}, or with the cache of
/// earlier reconciles.
struct ReconcileState {
  std::shared_ptr<ModelCache> cache;  ///< of this ParallelModel; null: a new one is made
  std::optional<Snapshot> view;       ///< the snapshot, updated by the responses so far
  std::optional<k8s::Request> sent;   ///< awaits its response
  bool asks_policy = false,
       asks_claim = false;    ///< the sent request reads the user's policy ConfigMap; the PVC of the checkpoint
  bool asks_devices = false;  ///< the sent request reads a part of the device inventory
  Notes notes;
  std::vector<Event> events;           ///< Kubernetes Events to record when the reconcile ends
  std::vector<StageTime> stage_times;  ///< to observe in metrics when the reconcile ends
  Json written;                        ///< the status that was sent last
  int requests = 0;
};

struct Call {
  ReconcileState state;
  k8s::Request request;
};

struct Done {
  std::optional<std::chrono::milliseconds> requeue_after;  ///< reconcile again then even if nothing changes
  std::optional<std::string> error;                        ///< reconcile again soon, from a fresh snapshot
  std::vector<Event> events;
  std::vector<StageTime> stage_times;
};

/// Runs one step of a reconcile. `response` answers the request of the last Call; it is nullopt at the start.
std::variant<Call, Done> reconcile_step(ReconcileState, const Snapshot&, const std::optional<k8s::Response>& response,
                                        const Settings&);

}  // namespace pm::op
