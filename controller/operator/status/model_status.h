// SPDX-License-Identifier: Apache-2.0
// Declares the desired status: a pure function of what a reconcile observed. It is written only when it differs.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/operator/planning/planning.h"
#include "controller/operator/replicas/replica_planner.h"

namespace pm::op {

/// The results of the API calls of this reconcile.
struct Notes {
  std::optional<PolicyAnswer> policy;          ///< the result of reading spec.model.policyRef
  std::optional<Claim> claim;                  ///< the PVC of the checkpoint
  std::optional<DeviceInventory> devices;      ///< the DeviceClass and the ResourceSlices, read so far
  std::set<std::string> claim_templates_read;  ///< names; a ResourceClaimTemplate exists if `live` has it
  std::optional<std::string> conflict;         ///< an object with one of our names has another owner
  std::optional<Wait> refused;                 ///< the API server refused a pod: quota, Pod Security, a bad value
  std::map<std::string, Json> live;            ///< objects read from the API server, by "Kind/name"
  std::set<std::string> optional_read;  ///< kinds of optional children that were read; one exists if `live` has it
  std::map<std::string, std::string> unavailable;  ///< why an optional child cannot be created, by its kind
  /// "Kind/name" of corrected objects. Each is corrected once per reconcile, in case somebody reverts it at once.
  std::set<std::string> drift_corrected;
  size_t pod_group_version = 0;              ///< index into pod_group_resources; those before are not served
  std::set<std::string> pod_groups_missing;  ///< names of PodGroups that the API server does not have
  std::set<std::string> nodes_read;          ///< nodes of the view that were read from the API server
  /// Raised when the API server refuses the status: 1 omits long fields, 2 omits all but what replicas depend on.
  int truncation_level = 0;
  bool unreadable = false;  ///< the spec is invalid; fields that depend on it keep their last status
};

struct StatusInputs {
  const Owner& owner;
  const Spec& spec;
  const Snapshot& snapshot;
  const Planning& planning;
  const ReplicaPlan& replica_plan;
  const std::optional<Wanted>& wanted;
  const Notes& notes;
};

/// Builds the whole status with the conditions Planned, Scheduled, ModelLoaded, Ready, Reconciling and Stalled.
/// lastTransitionTime of a condition changes only with its status.
Json make_status(const StatusInputs&);

/// Returns the names in status.resourceClaimTemplates: of templates that the operator made, or may have made.
std::set<std::string> recorded_claim_templates(const Json& model);

/// Sets wait reasons of pods that need more than the pod: InsufficientDevices (needs N, free M) and VolumeNotMounted.
/// `mount_events` is that of ModelCache.
void refine_waits(std::vector<PodState>& pods, const Spec&, const Snapshot&,
                  const std::map<std::string, MountEvent>& mount_events, int devices_per_pod);

/// A Kubernetes Event for `kubectl describe`.
struct Event {
  bool warning = false;
  std::string reason, action, note;
  bool operator==(const Event&) const = default;
};
/// Returns the Events for the transition from one status to the next.
std::vector<Event> status_events(const Json& before, const Json& after);

/// How long a stage of a start took.
struct StageTime {
  std::string stage;  ///< fetched, scheduled, pulled, loaded, warmed or total
  double seconds = 0;
};
/// Returns the times that `after` has and `before` does not: of replicas that have begun to serve, and of a download.
std::vector<StageTime> new_stage_times(const Json& before, const Json& after);

}  // namespace pm::op
