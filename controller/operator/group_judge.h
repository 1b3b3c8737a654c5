// One group while it is judged: what its pods say of it. Pure; used by group.cpp only.
#pragma once
#include <optional>
#include <vector>

#include "controller/operator/group.h"

namespace pm::op {

struct Group {
  GroupRecord record;
  bool known = false;                   ///< was in the status
  bool current = false;                 ///< made of what is wanted
  std::vector<const PodState*> now, former, before;   ///< pods of the present incarnation, of the one that serves until it does, and of others
  int nodes = 1;                        ///< pods of a whole incarnation
  std::optional<Exit> loss;

  bool whole() const { return static_cast<int>(now.size()) >= nodes; }
  /// The present incarnation serves.
  bool serves() const;
  /// The former one does.
  bool former_serves() const;
  /// Pods of the present incarnation that have a node.
  int bound() const;
  /// It spent its restarts, and they are not more meanwhile.
  bool given_up(const FailurePolicy&) const;
};

/// Judges groups from their pods alone; asks to be woken when time alone will change an answer.
class Judge {
 public:
  Judge(const GroupsView& view, std::optional<k8s::WallTime>& wake) : in_(view), now_(view.snapshot.now), wake_(wake) {}

  /// Fills in readiness, bytes, nodes and the loss, and ends a surge that succeeded or whose former incarnation is gone.
  void judge(Group&) const;
  /// Reason and message of what a group is about.
  void describe(Group&) const;
  std::optional<Progress> progress_of(const Group&) const;
  /// When an update that finds no room beside the former incarnation is given up; nothing without an update under way.
  std::optional<k8s::WallTime> surge_end(const GroupRecord&) const;
  bool wanted_index(int index) const { return index < in_.spec.replicas; }

 private:
  void wake(k8s::WallTime when) const { wake_ = wake_ ? std::min(*wake_, when) : when; }
  void end_surge(Group&) const;
  void note_nodes(Group&) const;
  void note_ranks(Group&) const;
  double load_time(const Group&) const;
  std::optional<Exit> loss_of(const Group&) const;
  void watch_start(Group&) const;
  void describe_gap(Group&) const;
  void describe_start(Group&) const;
  void describe_surge(Group&) const;
  const Plan& plan() const { return in_.wanted->inputs.stored.plan; }

  const GroupsView& in_;
  const k8s::WallTime now_;
  std::optional<k8s::WallTime>& wake_;
};

}  // namespace pm::op
