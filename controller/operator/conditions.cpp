// The closed table of conditions: what each is, from what a pass saw.
#include "controller/operator/conditions.h"

#include <algorithm>
#include <array>

#include "controller/operator/text.h"

namespace pm::op {

namespace {

class Table {
 public:
  explicit Table(const StatusInputs& in) : in_(in) {
    for (const GroupRecord& record : in.groups.records) {
      if (record.index >= in.spec.replicas) continue;
      wanted_.push_back(&record);
      if (record.ready) ++ready_;
    }
  }

  std::vector<k8s::Condition> run() {
    const auto planned = this->planned(), scheduled = this->scheduled(planned), loaded = this->loaded(scheduled), ready = this->ready(scheduled);
    const auto stalled = this->stalled();
    return {planned, scheduled, loaded, ready, reconciling(stalled, ready), stalled};
  }

 private:
  using Condition = k8s::Condition;
  Condition make(const char* type, bool status, const std::string& reason, const std::string& message) const {
    return {type, status, reason_word(reason, "Unknown"), clip(message, in_.notes.lean ? 200 : 2000), static_cast<long>(in_.owner.generation)};
  }

  Condition planned() const {
    if (in_.planning.plan) return make("Planned", true, in_.planning.plan->plan.reason, in_.planning.plan->plan.message + (in_.planning.note.empty() ? "" : "; " + in_.planning.note));
    return make("Planned", false, in_.planning.reason, in_.planning.message);
  }

  Condition scheduled(const Condition& planned) const {
    if (in_.notes.refused) return make("Scheduled", false, in_.notes.refused->reason, in_.notes.refused->message);
    if (in_.spec.replicas == 0) return make("Scheduled", true, "ScaledToZero", "no pod is wanted");
    if (wanted_.empty() && in_.planning.fetch) return make("Scheduled", false, in_.planning.fetch->reason, in_.planning.fetch->message);
    if (wanted_.empty()) {
      const auto& wait = in_.planning.wait;
      if (wait && wait->reason != "Starting" && planned.reason == "Inspecting") return make("Scheduled", false, wait->reason, in_.planning.message);
      return make("Scheduled", false, planned.reason, planned.message);
    }
    for (const GroupRecord* record : wanted_) {
      int bound = 0;
      for (const PodState& pod : in_.groups.pods) {
        if (pod.group != record->index || pod.incarnation != record->incarnation || pod.deleting) continue;
        const bool stuck = pod.wait && (pod.wait->reason != "Starting" || !pod.bound());
        if (stuck) return make("Scheduled", false, pod.wait->reason, "pod " + pod.name + ": " + pod.wait->message);
        ++bound;
      }
      if (bound == 0 || !record->created) return make("Scheduled", false, word(*record), "group " + std::to_string(record->index) + ": " + record->message);
    }
    return make("Scheduled", true, "AllPodsBound", "every pod has its node");
  }

  Condition loaded(const Condition& scheduled) const {
    if (in_.spec.replicas == 0) return make("ModelLoaded", false, "ScaledToZero", "no group is wanted");
    for (const GroupRecord* record : wanted_) {
      if (record->loaded) return make("ModelLoaded", true, "Loaded", "every rank of group " + std::to_string(record->index) + " holds its bytes");
    }
    for (const GroupRecord* record : wanted_) {
      if (record->reason == "Loading") return make("ModelLoaded", false, "Loading", "group " + std::to_string(record->index) + ": " + record->message);
    }
    if (!scheduled.status) return make("ModelLoaded", false, scheduled.reason, scheduled.message);
    return make("ModelLoaded", false, word(*wanted_.front()), "group " + std::to_string(wanted_.front()->index) + ": " + wanted_.front()->message);
  }

  Condition ready(const Condition& scheduled) const {
    const std::string count = std::to_string(ready_) + " of " + std::to_string(in_.spec.replicas) + (in_.spec.replicas == 1 ? " group serves" : " groups serve");
    if (in_.spec.replicas == 0) return make("Ready", false, "ScaledToZero", "spec.replicas is 0");
    const GroupRecord* down = nullptr;
    for (const GroupRecord* record : wanted_) {
      if (!record->ready && !down) down = record;
    }
    const GroupRecord* updating = nullptr;
    for (const GroupRecord* record : wanted_) {
      if (record->former && !updating) updating = record;
    }
    if (!down) down = updating;
    const std::string why = down ? "; group " + std::to_string(down->index) + ": " + down->message : "";
    const std::string& held = in_.planning.fetch ? in_.planning.fetch->reason : in_.planning.reason;
    const std::string former = in_.planning.plan && !in_.planning.fetch ? "" : " by the former plan, the present one: " + held + ": " + (in_.planning.fetch ? in_.planning.fetch->message : in_.planning.message);
    if (ready_ > 0) return make("Ready", true, "Serving", count + former + why);
    if (in_.notes.conflict) return make("Ready", false, "NameConflict", *in_.notes.conflict);
    if (in_.notes.refused || !down) return make("Ready", false, scheduled.reason, scheduled.message);
    return make("Ready", false, word(*down), count + why);
  }

  Condition stalled() const {
    if (in_.notes.conflict) return make("Stalled", true, "NameConflict", *in_.notes.conflict);
    if (!in_.planning.plan && !in_.planning.waiting) return make("Stalled", true, in_.planning.reason, in_.planning.message);
    for (const GroupRecord* record : wanted_) {
      if (record->reason != BudgetExhausted) continue;
      const std::string message = "group " + std::to_string(record->index) + ": " + record->message;
      if (in_.groups.rollout_blocked) return make("Stalled", true, "RolloutBlocked", "the update stops, groups of the former spec keep serving; " + message);
      return make("Stalled", true, BudgetExhausted, message);
    }
    return make("Stalled", false, "NotStalled", "");
  }

  Condition reconciling(const Condition& stalled, const Condition& ready) const {
    if (stalled.status) return make("Reconciling", false, "Stalled", "waits for a change: " + stalled.reason);
    if (in_.planning.fetch) return make("Reconciling", true, in_.planning.fetch->reason, in_.planning.fetch->message);
    const bool same = in_.planning.plan && !in_.notes.refused && in_.groups.records.size() == wanted_.size() &&
                      static_cast<int>(wanted_.size()) == in_.spec.replicas && ready_ == in_.spec.replicas &&
                      std::all_of(wanted_.begin(), wanted_.end(), [&](const GroupRecord* record) { return record->pod_hash == in_.wanted->hash && !record->former; });
    if (same) return make("Reconciling", false, "Converged", "");
    const bool inspects = !in_.planning.plan;
    return make("Reconciling", true, inspects ? in_.planning.reason : "Progressing", inspects ? in_.planning.message : ready.message);
  }

  /// A group's state in a word of the table.
  static std::string word(const GroupRecord& record) {
    static const std::array known{"InsufficientDevices", "Unschedulable", "ImagePullFailed", "VolumeNotMounted", "Loading", "RankLost", "RankHung", "OOMKilled",
                                  "CommunicatorAborted", "DeviceFault", "NodeLost", "BackingOff", "GroupWaiting", "Starting", "RestartBudgetExhausted"};
    if (std::find(known.begin(), known.end(), record.reason) != known.end()) return record.reason;
    if (record.reason == "NoDevice") return "DeviceFault";   // the worker found none, or was not built for it
    return record.reason == "Updating" || record.reason == "StartTimeout" || record.reason.empty() ? "Starting" : "RankLost";
  }

  const StatusInputs& in_;
  std::vector<const GroupRecord*> wanted_;
  int ready_ = 0;
};

}  // namespace

std::vector<k8s::Condition> conditions_of(const StatusInputs& in) { return Table(in).run(); }

}  // namespace pm::op
