// The status as it should read: a pure function of what a pass saw. Written only when it differs.
#pragma once
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/operator/group.h"
#include "controller/operator/planning.h"

namespace pm::op {

/// What API calls of this pass taught.
struct Notes {
  std::optional<PolicyAnswer> policy;             ///< what spec.model.policyRef stands for
  std::optional<Claim> claim;                     ///< of the checkpoint
  std::optional<std::string> conflict;            ///< an object of one of our names is not ours
  std::optional<Wait> refused;                    ///< the API server took no pod: quota, Pod Security, a bad value
  std::map<std::string, Json> live;               ///< "Kind/name" -> what the API server itself holds under one of our names
  bool monitor_read = false;                      ///< live["PodMonitor/NAME"] is as the API server has it: there or not
  std::string no_monitor;                         ///< why the PodMonitor that is asked for cannot be made
  std::set<std::string> mended;                   ///< "Kind/name": once in a pass is enough, should somebody else undo it at once
  std::set<std::string> nodes_read;               ///< nodes that the view shows as the API server has them now
  int lean = 0;                                   ///< the status was refused: 1 leaves out what is long, 2 all but what groups depend on
  bool unreadable = false;                        ///< the spec is none: what it would have said is kept from the last status
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

/// Gives pods the words of the condition table that need more than the pod: InsufficientDevices (needs N, free M), VolumeNotMounted. `heard`: of Memo.
void refine_waits(std::vector<PodState>& pods, const Spec&, const Snapshot&, const std::map<std::string, Heard>& heard, int devices_per_pod);

/// Something that people should see in `kubectl describe`.
struct Event {
  bool warning = false;
  std::string reason, action, note;
  bool operator==(const Event&) const = default;
};
/// What the step from one status to the next is worth telling.
std::vector<Event> events_of(const Json& before, const Json& after);

}  // namespace pm::op
