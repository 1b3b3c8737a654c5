// SPDX-License-Identifier: Apache-2.0
// Writes the reason and message of a replica for users.
#include <algorithm>

#include "base/transfer.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/replicas/evacuation.h"
#include "controller/operator/replicas/replica_health.h"

namespace pm::op {

void ReplicaHealth::describe(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  if (!wanted_index(record.index)) {
    record.reason = name_of(Reason::ScalingDown);
  } else if (replica.serves()) {
    record.reason = name_of(Reason::Serving);
    record.message.clear();
  } else if (record.reason == Reason::RestartBudgetExhausted) {
    record.message = std::to_string(record.restart_times.size()) + " restarts within " +
                     std::to_string(in_.spec.failure.window.count()) +
                     " s did not help; change the pod spec, raise failure.maxRestarts, or set the annotation " +
                     annotation::restarted_at + " to try again";
  } else if (!record.created && replica.pods.empty()) {
    describe_waiting(replica);
  } else if (!replica.loss) {
    describe_start(replica);
  }
  if (record.previous && record.reason != Reason::RestartBudgetExhausted) describe_surge(replica);
}

/// Explains why a replica has no pods, and until when.
void ReplicaHealth::describe_waiting(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  const k8s::WallTime until = backoff_until(record, in_.spec.failure);
  if (record.wait_until && now_ < *record.wait_until) {
    record.reason = name_of(Reason::ReplicaWaiting);
    record.message = "not all of its " + std::to_string(replica.nodes) + " pods found a node within " +
                     std::to_string(in_.spec.scheduling.timeout.count()) +
                     " s (scheduling.scheduleTimeoutSeconds), so all were released; the next attempt is at " +
                     k8s::format_time(*record.wait_until);
    wake(*record.wait_until);
  } else if (now_ < until) {
    record.reason = name_of(Reason::BackingOff);
    record.message = "failed " + std::to_string(record.restart_times.size()) +
                     " times within the window; the next attempt is at " + k8s::format_time(until);
    wake(until);
  } else if (record.message.empty()) {
    const auto lives = [](const PodState* pod) { return pod->live(); };
    const bool waits = std::any_of(replica.earlier_pods.begin(), replica.earlier_pods.end(), lives);
    if (!waits || record.reason.empty()) record.reason = name_of(Reason::Starting);
    record.message =
        waits ? "its next pods are created when those of the last generation have ended" : "its pods are being created";
  }
}

void ReplicaHealth::describe_start(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  for (const PodState* pod : replica.pods) {
    if (!pod->wait) continue;
    record.reason = pod->wait->reason;
    record.message = "pod " + pod->name + ": " + pod->wait->message;
    if (pod->wait->reason != Reason::Starting) return;
  }
  if (std::any_of(replica.pods.begin(), replica.pods.end(), [](const PodState* pod) { return pod->wait.has_value(); }))
    return;
  if (record.load_seconds) {
    record.reason = name_of(Reason::RankLost);
    record.message = "it is no longer ready; its worker has not reported why yet";
    return;
  }
  const auto progress = progress_of(replica);
  if (progress && progress->all_ready()) {
    record.reason = name_of(Reason::Starting);
    record.message = "every rank is loaded; the first readiness probe runs through them";
  } else if (progress && progress->loaded().total > 0) {
    record.reason = name_of(Reason::Loading);
    record.message = "loads " + base::to_text(progress->loaded());
  } else {
    record.reason = name_of(Reason::Starting);
    record.message = "its worker starts";
  }
}

/// The previous generation continues to serve. Without room for two, the message announces the downtime in advance.
void ReplicaHealth::describe_surge(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  const auto end = surge_end(record, in_.spec);
  const std::string previous = "generation " + std::to_string(record.previous);
  std::string text = previous + (replica.moves() ? " leaves its node and serves" : " serves") + " until generation " +
                     std::to_string(record.replica_generation) + " does: " + record.message;
  if (replica.bound_pods() < replica.nodes) {
    if (replica.moves() && end)
      text += "; without room, evictions may end " + previous + " from " + k8s::format_time(*end) +
              " on, and the replica does not serve from then until it has started elsewhere";
    else if (replica.waits_in_queue())
      text += "; the wait for a queue ends no update: set update.maxSurge to 0 if the quota has no room for both";
    else if (in_.spec.update.max_unavailable == 0)
      text += "; update.maxUnavailable is 0, so it waits for room";
    else if (end)
      text +=
          "; without room it is replaced in place from " + k8s::format_time(*end) + " on, and does not serve meanwhile";
  }
  record.message = text;
}

}  // namespace pm::op
