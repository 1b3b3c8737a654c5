// The life of groups: what the status remembers of each, and what follows for it from its pods. Pure.
#pragma once
#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/operator/desired.h"
#include "controller/operator/pod_state.h"
#include "controller/operator/progress.h"

namespace pm::op {

struct RankRecord {
  int rank = 0;
  std::string node;
  int64_t total = 0;                    ///< bytes of the device
  Memory predicted;
  std::optional<Memory> measured;
};

/// status.groups[]: the operator's memory. Everything else is seen anew in every pass.
struct GroupRecord {
  int index = 0;
  int64_t incarnation = 1;
  bool created = false;                 ///< all pods of this incarnation were made; one that is missing now was lost
  std::string pod_hash;
  int64_t former = 0;                   ///< incarnation of the former spec that serves until this one does; 0: none
  int64_t given_up = 0;                 ///< a later incarnation, of an update that was taken back before it served; 0: none
  std::optional<k8s::WallTime> surge_since;       ///< with `former`: when this incarnation was wanted
  int64_t waits = 0;                    ///< how often in a row its pods were given back because not all found a node
  std::optional<k8s::WallTime> wait_until;        ///< no pods before, after they were given back
  bool ready = false;                   ///< this incarnation serves, or the former one
  std::string reason;                   ///< one word; of the condition table while it does not serve
  std::string message;                  ///< not stored: for conditions
  bool loaded = false;                  ///< not stored: every rank holds its bytes
  int64_t restarts = 0;
  std::vector<k8s::WallTime> restart_times;       ///< ascending, within the window when last appended
  std::optional<double> load_seconds;   ///< set when it first serves
  std::vector<std::string> nodes;
  std::vector<RankRecord> ranks;

  /// The highest incarnation that ever had pods.
  int64_t last() const { return std::max(incarnation, given_up); }
};
Json to_json(const GroupRecord&);
/// Reads status.groups; what cannot be read is left out, and groups are then adopted from their pods.
std::vector<GroupRecord> group_records(const Json& model);

/// status.lastFailure
struct FailureRecord {
  int group = 0;
  int64_t incarnation = 0;
  Exit exit;
  k8s::WallTime time;
};
Json to_json(const FailureRecord&);

/// What groups are to be made of.
struct Wanted {
  PodInputs inputs;
  std::string hash;
};

struct GroupsView {
  const Spec& spec;
  const Snapshot& snapshot;
  std::vector<GroupRecord> records;     ///< as stored
  std::vector<PodState> pods;
  std::optional<Wanted> wanted;         ///< nothing: no plan for this spec; groups that run go on
};

struct Groups {
  std::vector<GroupRecord> records;     ///< ascending index
  std::vector<PodState> pods;
  std::optional<FailureRecord> failure; ///< new in this pass
  /// The records differ in what pods depend on (incarnation, hash, restarts): write them before any of `actions`.
  bool commit = false;
  std::vector<k8s::Request> actions;    ///< in order
  /// Nodes whose end some creation among `actions` relies on: a pod there was deleted, and nobody confirmed that it is gone. To be looked at before.
  std::set<std::string> dead_nodes;
  std::optional<k8s::WallTime> wake;
  bool rollout_blocked = false;         ///< a new group spent its budget while old ones remain
  bool exhausted = false;               ///< a group spent its budget
  const GroupRecord* find(int index) const;
};

inline const std::string BudgetExhausted = "RestartBudgetExhausted";

/// - Rank or pod lost: the incarnation ends, survivors are deleted with 5 s of grace, the next one follows: at once for the first failure
///   within the window, then after base x 2^n up to max; more than maxRestarts of them: it stays down until the pods' hash changes.
/// - At most one live incarnation of a group: the next is made when no pod of an earlier one may still run.
/// - Another hash: a group that does not serve is replaced at once. One that serves goes on while its next incarnation starts beside it, maxSurge of
///   them at a time; where that finds no room within surgeTimeoutSeconds the group is replaced in place, maxUnavailable at a time. Nothing that
///   serves is touched once a new group has spent its budget.
/// - An update that is taken back before its group serves: what served all along is the present incarnation again, at once, and nothing starts.
/// - A group of several pods of which some have a node and others have none after scheduleTimeoutSeconds is given back whole, and tried again after
///   a wait of base x 2^n up to max, stretched or shortened by up to a half so that two such groups do not meet again.
/// - Groups beyond replicas are deleted with their own grace, and forgotten when their pods are gone.
Groups govern(const GroupsView&);

/// When a group may be made again after its failures.
k8s::WallTime backoff_until(const GroupRecord&, const FailurePolicy&);

/// Pods whose ops port is worth asking: node-rank 0 of groups that load, or serve without their bytes being known; fetch pods that run.
std::vector<k8s::ObjectPtr> pods_to_probe(const Snapshot&);

}  // namespace pm::op
