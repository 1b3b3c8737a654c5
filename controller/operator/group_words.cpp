// Reason and message of a group, for people.
#include <algorithm>

#include "controller/operator/group_judge.h"
#include "controller/operator/text.h"

namespace pm::op {

void Judge::describe(Group& group) const {
  GroupRecord& record = group.record;
  if (!wanted_index(record.index)) {
    record.reason = "ScalingDown";
  } else if (group.serves()) {
    record.reason = "Serving";
    record.message.clear();
  } else if (record.reason == BudgetExhausted) {
    record.message = std::to_string(record.restart_times.size()) + " restarts within " + std::to_string(in_.spec.failure.window.count()) +
                     " s did not help; change what its pods are made of, raise failure.maxRestarts, or set the annotation " + annotation::restarted_at + " to try again";
  } else if (!record.created && group.now.empty()) {
    describe_gap(group);
  } else if (!group.loss) {
    describe_start(group);
  }
  if (record.former && record.reason != BudgetExhausted) describe_surge(group);
}

/// Without pods: until when, and why.
void Judge::describe_gap(Group& group) const {
  GroupRecord& record = group.record;
  const k8s::WallTime until = backoff_until(record, in_.spec.failure);
  if (record.wait_until && now_ < *record.wait_until) {
    record.reason = "GroupWaiting";
    record.message = "not all of its " + std::to_string(group.nodes) + " pods found a node within " + std::to_string(in_.spec.scheduling.timeout.count()) +
                     " s (scheduling.scheduleTimeoutSeconds), so that all were given back; the next try is at " + k8s::format_time(*record.wait_until);
    wake(*record.wait_until);
  } else if (now_ < until) {
    record.reason = "BackingOff";
    record.message = "failed " + std::to_string(record.restart_times.size()) + " times within the window; the next try is at " + k8s::format_time(until);
    wake(until);
  } else if (record.message.empty()) {
    const auto lives = [](const PodState* pod) { return pod->live(); };
    const bool waits = std::any_of(group.before.begin(), group.before.end(), lives);
    if (!waits || record.reason.empty()) record.reason = "Starting";
    record.message = waits ? "its next pods are made when those of the last incarnation have ended" : "its pods are about to be made";
  }
}

void Judge::describe_start(Group& group) const {
  GroupRecord& record = group.record;
  for (const PodState* pod : group.now) {
    if (!pod->wait) continue;
    record.reason = pod->wait->reason;
    record.message = "pod " + pod->name + ": " + pod->wait->message;
    if (pod->wait->reason != "Starting") return;
  }
  if (std::any_of(group.now.begin(), group.now.end(), [](const PodState* pod) { return pod->wait.has_value(); })) return;
  if (record.load_seconds) {
    record.reason = "RankLost";
    record.message = "it stopped being ready; its worker has not said why yet";
    return;
  }
  const auto progress = progress_of(group);
  if (progress && progress->all_ready()) {
    record.reason = "Starting";
    record.message = "every rank is loaded; the first probe crosses them";
  } else if (progress && progress->total() > 0) {
    record.reason = "Loading";
    record.message = bytes_text(progress->loaded()) + " of " + bytes_text(progress->total()) + " loaded";
  } else {
    record.reason = "Starting";
    record.message = "its worker starts";
  }
}

/// The former incarnation goes on; where there is no room for two, people hear of the gap before it comes.
void Judge::describe_surge(Group& group) const {
  GroupRecord& record = group.record;
  std::string text = "incarnation " + std::to_string(record.former) + " serves until incarnation " + std::to_string(record.incarnation) + " does: " + record.message;
  if (group.bound() < group.nodes) {
    if (in_.spec.update.max_unavailable == 0) text += "; update.maxUnavailable is 0, so it waits for room";
    else if (const auto end = surge_end(record)) text += "; without room it is replaced in place from " + k8s::format_time(*end) + " on, and does not serve meanwhile";
  }
  record.message = text;
}

}  // namespace pm::op
