// The status as it should read: a pure function of what a pass saw. Written only when it differs.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/group.h"
#include "controller/operator/planning.h"

namespace pm::op {

/// What API calls of this pass taught.
struct Notes {
  std::optional<PolicyAnswer> policy;             ///< what spec.model.policyRef stands for
  std::optional<std::string> conflict;            ///< an object of one of our names is not ours
  std::optional<Wait> refused;                    ///< the API server took no pod: quota, Pod Security, a bad value
  std::map<std::string, std::string> pod_events;  ///< pod -> why its volumes are not mounted, "" when Events do not say
  bool lean = false;                              ///< the full status was refused: leave out what is long
};

struct StatusInputs {
  const Owner& owner;
  const Spec& spec;
  const Snapshot& snapshot;
  const Planning& planning;
  const Groups& groups;
  const std::optional<Wanted>& wanted;
  const Notes& notes;
};

/// The whole status, with the conditions of OPERATOR.md's closed table: Planned, Scheduled, ModelLoaded, Ready, Reconciling, Stalled.
/// lastTransitionTime of a condition moves only with its status.
Json status_of(const StatusInputs&);
/// The status of a spec that cannot be read: Planned=False with the reason, groups as they are.
Json unreadable_status(const Json& model, const std::string& message, k8s::WallTime now);

/// Gives pods the words of the condition table that need more than the pod: InsufficientDevices (needs N, free M), VolumeNotMounted.
void refine_waits(std::vector<PodState>& pods, const Spec&, const Snapshot&, const Notes&, int devices_per_pod);

/// Something that people should see in `kubectl describe`.
struct Event {
  bool warning = false;
  std::string reason, action, note;
  bool operator==(const Event&) const = default;
};
/// What the step from one status to the next is worth telling.
std::vector<Event> events_of(const Json& before, const Json& after);

}  // namespace pm::op
