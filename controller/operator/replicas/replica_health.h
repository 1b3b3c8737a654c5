// SPDX-License-Identifier: Apache-2.0
// Declares the assessment of one replica from its pods. It is pure; only the replica planner uses it.
#pragma once
#include <optional>
#include <vector>

#include "controller/operator/replicas/replica_planner.h"

namespace pm::op {

struct Replica {
  ReplicaRecord record;
  bool in_status = false;                      ///< it has a record in the status
  bool up_to_date = false;                     ///< its pod hash is the desired one
  std::vector<const PodState*> pods;           ///< of the current generation
  std::vector<const PodState*> previous_pods;  ///< of the generation that serves until the current one does
  std::vector<const PodState*> earlier_pods;   ///< of any other generation
  int nodes = 1;                               ///< pods of a complete generation
  std::optional<Exit> loss;                    ///< its reason is Disrupted where nothing failed

  bool is_complete() const { return static_cast<int>(pods.size()) >= nodes; }
  /// Returns true when all pods of the current generation are ready.
  bool serves() const;
  /// Returns true when all pods of the previous generation are ready.
  bool previous_serves() const;
  /// Returns true when pods of the current hash continue to serve on a node that they leave.
  bool moves() const;
  /// Counts the pods of the current generation that have a node.
  int bound_pods() const;
  /// Returns true when a queue holds pods of the current generation.
  bool waits_in_queue() const;
  /// Returns true when it used up its restarts and maxRestarts was not raised since.
  bool has_exhausted_restarts(const FailurePolicy&) const;
};

/// Assesses replicas from their pods alone. It sets `wake` when an assessment will change by time alone.
class ReplicaHealth {
 public:
  ReplicaHealth(const ReplicaInputs& view, std::optional<k8s::WallTime>& wake)
      : in_(view), now_(view.snapshot.now), wake_(wake) {}

  /// Sets readiness, memory, nodes and the loss of a replica. Ends a surge that succeeded or whose previous generation
  /// is gone.
  void assess(Replica&) const;
  /// Sets reason and message of a replica.
  void describe(Replica&) const;
  std::optional<Progress> progress_of(const Replica&) const;
  bool wanted_index(int index) const { return index < in_.spec.replicas; }

 private:
  void wake(k8s::WallTime when) const { wake_ = wake_ ? std::min(*wake_, when) : when; }
  void end_surge(Replica&) const;
  void update_nodes(Replica&) const;
  void update_ranks(Replica&) const;
  double load_time(const Replica&) const;
  std::optional<Exit> first_failure(const Replica&) const;
  std::optional<Exit> disruption(const Replica&) const;
  std::optional<Exit> unhealthy_device(const Replica&) const;
  void check_start_timeout(Replica&) const;
  void describe_waiting(Replica&) const;
  void describe_start(Replica&) const;
  void describe_surge(Replica&) const;
  const Plan& plan() const { return in_.wanted->inputs.stored.plan; }

  const ReplicaInputs& in_;
  const k8s::WallTime now_;
  std::optional<k8s::WallTime>& wake_;
};

}  // namespace pm::op
