// SPDX-License-Identifier: Apache-2.0
// Declares the records of replicas in status and the planner that derives the next requests from them and their pods.
#pragma once
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/operator/children/desired.h"
#include "controller/operator/observed/pod_state.h"
#include "controller/operator/observed/progress.h"
#include "controller/operator/replicas/startup.h"

namespace pm::op {

struct RankRecord {
  int rank = 0;
  std::string node;
  int64_t total = 0;  ///< bytes of the device
  Memory predicted;
  std::optional<Memory> measured;
};

/// One element of status.replicaStatuses[]. It is all that the operator remembers of a replica; everything else is
/// observed again in every reconcile.
struct ReplicaRecord {
  int index = 0;
  int64_t replica_generation = 1;
  bool created = false;  ///< all pods of this generation were created; a missing one was lost
  std::string pod_hash;
  int64_t previous = 0;   ///< generation of the previous spec, which serves until this one does; 0: none
  int64_t abandoned = 0;  ///< later generation, of an update that was reverted before it served; 0: none
  std::optional<k8s::WallTime> surge_since;  ///< with `previous`: start of the surge
  int64_t waits = 0;                         ///< consecutive releases because not all pods found a node
  std::optional<k8s::WallTime> wait_until;   ///< after a release: no pods are created before
  bool ready = false;                        ///< this generation serves, or the previous one
  std::string reason;                        ///< CamelCase; a reason of the condition table while it does not serve
  std::string message;                       ///< not stored; used by conditions
  bool loaded = false;                       ///< not stored; every rank has loaded its weights
  int64_t restarts = 0;
  std::vector<k8s::WallTime> restart_times;  ///< ascending, within the window when last appended
  int64_t disruptions = 0;                   ///< ends by planned disruptions, which are no restarts
  std::string disruption;                    ///< the last of them, as a sentence; "": none
  std::optional<double> load_seconds;        ///< set when it first serves
  std::optional<Startup> startup;            ///< once it serves and its ranks have reported
  std::vector<std::string> nodes;
  std::vector<RankRecord> ranks;

  /// Drops what is known of the start of the current generation.
  void forget_start() { load_seconds.reset(), startup.reset(); }
  /// Returns the highest generation that ever had pods.
  int64_t last() const { return std::max(replica_generation, abandoned); }
};
Json to_json(const ReplicaRecord&);
/// Parses status.replicaStatuses. Invalid elements are skipped; their replicas are adopted from their pods later.
std::vector<ReplicaRecord> replica_records(const Json& model);

/// The content of status.lastFailure.
struct FailureRecord {
  int replica = 0;
  int64_t replica_generation = 0;
  Exit exit;
  k8s::WallTime time;
};
Json to_json(const FailureRecord&);

/// The desired pods of replicas and their hash.
struct Wanted {
  PodInputs inputs;
  std::string hash;
};

struct ReplicaInputs {
  const Spec& spec;
  const Snapshot& snapshot;
  std::vector<ReplicaRecord> records;  ///< as stored
  std::vector<PodState> pods;
  std::optional<Wanted> wanted;  ///< nullopt: this spec has no plan, and running replicas continue
};

struct ReplicaPlan {
  std::vector<ReplicaRecord> records;  ///< ascending index
  std::vector<PodState> pods;
  std::optional<FailureRecord> failure;  ///< new in this reconcile
  /// True when records changed in fields that pods depend on (generation, hash, restarts). The status must then be
  /// written before any of `actions` is sent.
  bool commit = false;
  std::vector<k8s::Request> actions;  ///< in order
  /// Nodes that must be dead for the creations in `actions` to be safe: a pod there was deleted, and no kubelet
  /// confirmed its end. They are read from the API server first.
  std::set<std::string> dead_nodes;
  /// Nodes that replicas begin to leave in this reconcile. They are read first, for a stale view of a node that is
  /// admitted again would move its replica for ever.
  std::set<std::string> left_nodes;
  std::vector<Json> pod_groups;  ///< that pods which wait for nodes belong to
  std::optional<k8s::WallTime> wake;
  bool rollout_blocked = false;  ///< a new replica used up its restarts while old ones remain
  bool exhausted = false;        ///< a replica used up its restarts
  const ReplicaRecord* find(int index) const;
};

/// Plans the next requests for all replicas. The function is pure. Its rules:
/// - Failure: the loss of a rank or pod ends the generation. Remaining pods are deleted with 5 s of grace. The next
///   generation follows at once for the first failure within the window, then after min(base x 2^n, max), where n is 0
///   for the second failure. After maxRestarts failures the replica stays down until the pod hash changes.
/// - Planned disruption (eviction, preemption, taint, shut-down of a node): the next generation follows at once, and
///   nothing is counted. Other pods of the replica may finish their requests.
/// - Move: a serving replica with a pod on a node to leave (nodes_to_leave()) surges as in an update. Without room it
///   serves on where it is, and surges for as long as the node is to be left.
/// - Exclusion: a replica has at most one live generation. The next one is created when no pod of an earlier one may
///   still run.
/// - Update (the pod hash changes): a replica that does not serve is replaced at once. A serving replica continues
/// while
///   its next generation starts beside it, at most maxSurge at a time. Without room within surgeTimeoutSeconds it is
///   replaced in place, at most maxUnavailable at a time. No serving replica is touched once a new one has used up its
///   restarts.
/// - Revert: when an update is reverted before its replica serves, the serving generation becomes the current one
/// again.
///   No pod starts.
/// - Gang scheduling: when only some pods of a replica have a node after scheduleTimeoutSeconds, all are released. The
///   next try follows after min(base x 2^n, max) x (0.5 to 1.5); the jitter keeps two such replicas apart. Pods with a
///   scheduling group get their PodGroup once all of them exist, for they own it; the scheduler holds them until then.
/// - Scale-down: replicas beyond spec.replicas are deleted with the grace period of their pods and forgotten when those
///   are gone.
ReplicaPlan plan_replicas(const ReplicaInputs&);

/// Returns when a replica may be created again after its failures.
k8s::WallTime backoff_until(const ReplicaRecord&, const FailurePolicy&);

/// Returns the pods whose /status is to be polled: node-rank 0 of replicas that load, or that serve without measured
/// memory, and running fetch pods.
std::vector<k8s::ObjectPtr> pods_to_probe(const Snapshot&);

}  // namespace pm::op
