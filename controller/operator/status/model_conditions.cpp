// SPDX-License-Identifier: Apache-2.0
// Computes each condition from what a reconcile observed. The set of their reasons is closed.
#include "controller/operator/status/model_conditions.h"

#include <algorithm>

#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

class Table {
 public:
  explicit Table(const StatusInputs& in) : in_(in) {
    for (const ReplicaRecord& record : in.replica_plan.records) {
      if (record.index >= in.spec.replicas) continue;
      wanted_.push_back(&record);
      if (record.ready) ++ready_;
    }
  }

  std::vector<k8s::Condition> run() {
    const auto planned = this->planned(), scheduled = this->scheduled(planned), loaded = this->loaded(scheduled),
               ready = this->ready(scheduled);
    const auto stalled = this->stalled();
    return {planned, scheduled, loaded, ready, reconciling(stalled, ready), stalled};
  }

 private:
  using Condition = k8s::Condition;
  Condition make(const char* type, bool status, const std::string& reason, const std::string& message) const {
    return {type, status, reason_word(reason, "Unknown"), clip(message, in_.notes.truncation_level ? 200 : 2000),
            static_cast<long>(in_.owner.generation)};
  }

  Condition planned() const {
    if (in_.planning.plan)
      return make("Planned", true, in_.planning.plan->plan.reason,
                  in_.planning.plan->plan.message + (in_.planning.note.empty() ? "" : "; " + in_.planning.note));
    return make("Planned", false, in_.planning.reason, in_.planning.message);
  }

  Condition scheduled(const Condition& planned) const {
    if (in_.notes.refused) return make("Scheduled", false, in_.notes.refused->reason, in_.notes.refused->message);
    if (in_.spec.replicas == 0) return make("Scheduled", true, name_of(Reason::ScaledToZero), "no pod is wanted");
    if (wanted_.empty() && in_.planning.fetch)
      return make("Scheduled", false, in_.planning.fetch->reason, in_.planning.fetch->message);
    if (wanted_.empty()) {
      const auto& wait = in_.planning.wait;
      if (wait && wait->reason != Reason::Starting && planned.reason == Reason::Inspecting)
        return make("Scheduled", false, wait->reason, in_.planning.message);
      return make("Scheduled", false, planned.reason, planned.message);
    }
    for (const ReplicaRecord* record : wanted_) {
      int bound = 0;
      for (const PodState& pod : in_.replica_plan.pods) {
        if (pod.replica != record->index || pod.replica_generation != record->replica_generation || pod.deleting)
          continue;
        const bool stuck = pod.wait && (pod.wait->reason != Reason::Starting || !pod.bound());
        if (stuck) return make("Scheduled", false, pod.wait->reason, "pod " + pod.name + ": " + pod.wait->message);
        ++bound;
      }
      if (bound == 0 || !record->created)
        return make("Scheduled", false, name_of(word(*record)),
                    "replica " + std::to_string(record->index) + ": " + record->message);
    }
    return make("Scheduled", true, name_of(Reason::AllPodsBound), "every pod has its node");
  }

  Condition loaded(const Condition& scheduled) const {
    if (in_.spec.replicas == 0) return make("ModelLoaded", false, name_of(Reason::ScaledToZero), "spec.replicas is 0");
    for (const ReplicaRecord* record : wanted_) {
      if (record->loaded)
        return make("ModelLoaded", true, name_of(Reason::Loaded),
                    "every rank of replica " + std::to_string(record->index) + " holds its bytes");
    }
    for (const ReplicaRecord* record : wanted_) {
      if (record->reason == Reason::Loading)
        return make("ModelLoaded", false, name_of(Reason::Loading),
                    "replica " + std::to_string(record->index) + ": " + record->message);
    }
    if (!scheduled.status) return make("ModelLoaded", false, scheduled.reason, scheduled.message);
    return make("ModelLoaded", false, name_of(word(*wanted_.front())),
                "replica " + std::to_string(wanted_.front()->index) + ": " + wanted_.front()->message);
  }

  Condition ready(const Condition& scheduled) const {
    const std::string count = std::to_string(ready_) + " of " + std::to_string(in_.spec.replicas) +
                              (in_.spec.replicas == 1 ? " replica serves" : " replicas serve");
    if (in_.spec.replicas == 0) return make("Ready", false, name_of(Reason::ScaledToZero), "spec.replicas is 0");
    const ReplicaRecord* down = nullptr;
    for (const ReplicaRecord* record : wanted_) {
      if (!record->ready && !down) down = record;
    }
    const ReplicaRecord* updating = nullptr;
    for (const ReplicaRecord* record : wanted_) {
      if (record->previous && !updating) updating = record;
    }
    if (!down) down = updating;
    const std::string why = down ? "; replica " + std::to_string(down->index) + ": " + down->message : "";
    const std::string& held = in_.planning.fetch ? in_.planning.fetch->reason : in_.planning.reason;
    const std::string previous = in_.planning.plan && !in_.planning.fetch
                                     ? ""
                                     : " by the previous plan; the current one: " + held + ": " +
                                           (in_.planning.fetch ? in_.planning.fetch->message : in_.planning.message);
    if (ready_ > 0) return make("Ready", true, name_of(Reason::Serving), count + previous + why);
    if (in_.notes.conflict) return make("Ready", false, name_of(Reason::NameConflict), *in_.notes.conflict);
    if (in_.notes.refused || !down) return make("Ready", false, scheduled.reason, scheduled.message);
    return make("Ready", false, name_of(word(*down)), count + why);
  }

  Condition stalled() const {
    if (in_.notes.conflict) return make("Stalled", true, name_of(Reason::NameConflict), *in_.notes.conflict);
    if (!in_.planning.plan && !in_.planning.waiting)
      return make("Stalled", true, in_.planning.reason, in_.planning.message);
    for (const ReplicaRecord* record : wanted_) {
      if (record->reason != Reason::RestartBudgetExhausted) continue;
      const std::string message = "replica " + std::to_string(record->index) + ": " + record->message;
      if (in_.replica_plan.rollout_blocked)
        return make("Stalled", true, name_of(Reason::RolloutBlocked),
                    "the update stops; replicas of the previous spec keep serving; " + message);
      return make("Stalled", true, name_of(Reason::RestartBudgetExhausted), message);
    }
    return make("Stalled", false, name_of(Reason::NotStalled), "");
  }

  Condition reconciling(const Condition& stalled, const Condition& ready) const {
    if (stalled.status)
      return make("Reconciling", false, name_of(Reason::Stalled), "waits for a change: " + stalled.reason);
    if (in_.planning.fetch) return make("Reconciling", true, in_.planning.fetch->reason, in_.planning.fetch->message);
    const bool same = in_.planning.plan && !in_.notes.refused && in_.replica_plan.records.size() == wanted_.size() &&
                      static_cast<int>(wanted_.size()) == in_.spec.replicas && ready_ == in_.spec.replicas &&
                      std::all_of(wanted_.begin(), wanted_.end(), [&](const ReplicaRecord* record) {
                        return record->pod_hash == in_.wanted->hash && !record->previous;
                      });
    if (same) return make("Reconciling", false, name_of(Reason::Converged), "");
    const bool inspects = !in_.planning.plan;
    return make("Reconciling", true, inspects ? in_.planning.reason : name_of(Reason::Progressing),
                inspects ? in_.planning.message : ready.message);
  }

  /// Maps the state of a replica to a reason of the condition table. A word of a worker of another version becomes
  /// RankLost.
  static Reason word(const ReplicaRecord& record) {
    if (record.reason.empty()) return Reason::Starting;
    const Reason reason = parse_reason(record.reason).value_or(Reason::RankLost);
    if (info_of(reason).shown_in == ShownIn::Replica) return reason;
    if (reason == Reason::NoDevice)
      return Reason::DeviceFault;  // the worker found no device, or was built without support for it
    const bool starts = reason == Reason::Updating || reason == Reason::Moving || reason == Reason::StartTimeout;
    return starts ? Reason::Starting : Reason::RankLost;
  }

  const StatusInputs& in_;
  std::vector<const ReplicaRecord*> wanted_;
  int ready_ = 0;
};

}  // namespace

std::vector<k8s::Condition> make_conditions(const StatusInputs& in) { return Table(in).run(); }

}  // namespace pm::op
