// SPDX-License-Identifier: Apache-2.0
// Derives the Kubernetes Events from the transition between two statuses.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "base/transfer.h"
#include "contract/reasons.h"
#include "controller/core/conditions.h"
#include "controller/core/object.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/status/model_status.h"

namespace pm::op {

namespace {

struct Change {
  std::string before, after, message;  ///< "True/Reason"
  bool now_true = false;
};

Change condition_change(const Json& before, const Json& after, const char* type) {
  Change change;
  const auto text = [&](const Json& status) -> std::string {
    const Json* found = k8s::find_condition(at(status, "/conditions"), type);
    return found ? k8s::string_at(*found, "/status") + "/" + k8s::string_at(*found, "/reason") : "";
  };
  change.before = text(before), change.after = text(after);
  if (const Json* found = k8s::find_condition(at(after, "/conditions"), type)) {
    change.message = k8s::string_at(*found, "/message");
    change.now_true = k8s::string_at(*found, "/status") == "True";
  }
  return change;
}

std::string reason_of(const std::string& change) { return change.substr(change.find('/') + 1); }

void condition_events(const Json& before, const Json& after, std::vector<Event>& out) {
  const Change planned = condition_change(before, after, "Planned");
  const bool new_plan = k8s::string_at(before, "/plan/planHash") != k8s::string_at(after, "/plan/planHash");
  if (planned.now_true && (new_plan || planned.before != planned.after))
    out.push_back({false, "PlanChosen", "Plan", planned.message});
  if (!planned.now_true && planned.before != planned.after && reason_of(planned.after) != name_of(Reason::Inspecting)) {
    out.push_back({true, reason_of(planned.after), "Plan", planned.message});
  }
  const Change stalled = condition_change(before, after, "Stalled");
  const Change scheduled = condition_change(before, after, "Scheduled");
  if (stalled.now_true && stalled.before != stalled.after && reason_of(stalled.after) != reason_of(planned.after)) {
    out.push_back({true, reason_of(stalled.after), "Stall", stalled.message});
  }
  const Change loaded = condition_change(before, after, "ModelLoaded");
  if (!loaded.now_true && loaded.before != loaded.after) {
    const std::string held = reason_of(loaded.after);
    static constexpr std::array fetch_failures{Reason::ChecksumMismatch,  Reason::InsufficientStorage,
                                               Reason::SourceUnreachable, Reason::AuthFailed,
                                               Reason::RevisionNotFound,  Reason::VolumeNotWritable};
    const bool is_failure =
        held != reason_of(planned.after) &&
        std::any_of(fetch_failures.begin(), fetch_failures.end(), [&](Reason failure) { return held == failure; });
    if (is_failure || held == Reason::Fetching) out.push_back({is_failure, held, "Fetch", loaded.message});
  }
  const auto took = integer_at(after, "/fetchSeconds");
  if (took && took != integer_at(before, "/fetchSeconds"))
    out.push_back({false, "Fetched", "Fetch",
                   "the checkpoint is on the volume, " + base::format_duration(static_cast<double>(*took)) +
                       " after its download was started"});
  const std::string why = reason_of(scheduled.after);
  if (!scheduled.now_true && scheduled.before != scheduled.after &&
      (why == Reason::InsufficientDevices || why == Reason::Unschedulable || why == Reason::QuotaExceeded ||
       why == Reason::ImagePullFailed || why == Reason::VolumeNotMounted)) {
    out.push_back({true, why, "Schedule", scheduled.message});
  }
}

/// The replicas to which the same happened in one reconcile. One Event reports all of them, for Events were a fifth of
/// all writes in a scale-up of a thousand models.
struct BatchedEvents {
  std::map<int64_t, std::vector<int64_t>> started;  ///< by generation
  std::vector<int64_t> ready;
  std::optional<Startup> slowest;  ///< of the ready ones, as far as they have reported it
};

/// Names replicas by ascending index: "replica 3", "replicas 0, 2 to 5".
std::string named(const std::vector<int64_t>& ascending) {
  std::string out = ascending.size() == 1 ? "replica " : "replicas ";
  for (size_t begin = 0, end = 0; begin < ascending.size(); begin = end) {
    while (end < ascending.size() && ascending[end] - ascending[begin] == static_cast<int64_t>(end - begin)) ++end;
    out += (begin ? ", " : "") + std::to_string(ascending[begin]);
    if (end - begin > 1) out += (end - begin > 2 ? " to " : ", ") + std::to_string(ascending[end - 1]);
  }
  return out;
}

/// Returns the entry of status.replicaStatuses with this index, or null.
const Json& with_index(const Json& replicas, std::optional<int64_t> index) {
  static const Json none;
  if (!replicas.is_array()) return none;
  for (const Json& replica : replicas) {
    if (integer_at(replica, "/index") == index) return replica;
  }
  return none;
}

void replica_events(const Json& before, const Json& after, const Json& failure, BatchedEvents& batched,
                    std::vector<Event>& out) {
  const int64_t index = integer_at(after, "/index").value_or(0);
  const std::string name = "replica " + std::to_string(index);
  const int64_t from = integer_at(before, "/replicaGeneration").value_or(0),
                to = integer_at(after, "/replicaGeneration").value_or(0);
  if (to < from) {
    const bool moved = k8s::string_at(before, "/podHash") == k8s::string_at(after, "/podHash");
    out.push_back({false, "ReplicaRestored", "Replace",
                   name + " stays at generation " + std::to_string(to) +
                       ", which serves: " + (moved ? "its node need not be left any more" : "the update was reverted") +
                       " before generation " + std::to_string(from) + " did"});
    return;
  }
  if (to > from && before.is_object()) {
    if (k8s::string_at(after, "/reason") == name_of(Reason::ScalingDown)) {
      out.push_back({false, "ReplicaScaledDown", "Scale",
                     name + " is more than spec.replicas asks for: its pods finish their requests and end"});
    } else if (integer_at(after, "/waits").value_or(0) > integer_at(before, "/waits").value_or(0)) {
      out.push_back({true, name_of(Reason::ReplicaWaiting), "Release",
                     name + ": not all of its pods found a node, so all were released; the next attempt is at " +
                         k8s::string_at(after, "/waitUntil")});
    } else if (integer_at(after, "/disruptions").value_or(0) > integer_at(before, "/disruptions").value_or(0)) {
      out.push_back({false, "ReplicaDisrupted", "Replace",
                     name + " is recreated as generation " + std::to_string(to) +
                         ", and no restart is counted: " + k8s::string_at(after, "/lastDisruption")});
    } else if (integer_at(after, "/previousGeneration") == from &&
               k8s::string_at(before, "/podHash") == k8s::string_at(after, "/podHash")) {
      out.push_back({false, "ReplicaMoving", "Move",
                     name + " leaves a node that is cordoned or about to be removed: generation " +
                         std::to_string(from) + " serves until generation " + std::to_string(to) + " does elsewhere"});
    } else if (integer_at(before, "/previousGeneration") && !integer_at(after, "/previousGeneration") &&
               k8s::string_at(before, "/podHash") == k8s::string_at(after, "/podHash")) {
      out.push_back({true, "ReplicaReplacedInPlace", "Replace",
                     name + " is replaced in place and does not serve meanwhile: there was no room for its next "
                            "generation beside it"});
    } else if (k8s::string_at(before, "/podHash") != k8s::string_at(after, "/podHash")) {
      out.push_back({false, "ReplicaUpdated", "Replace",
                     name + " is recreated from the current spec, as generation " + std::to_string(to)});
    } else {
      out.push_back({true, "ReplicaRestarted", "Restart",
                     name + " is recreated as generation " + std::to_string(to) + ": " +
                         k8s::string_at(failure, "/reason") + ": " + clip(k8s::string_at(failure, "/message"), 500)});
    }
  }
  const bool same = to == from;
  if (bool_at(after, "/created") && !(same && bool_at(before, "/created"))) batched.started[to].push_back(index);
  const auto serves = [](const Json& replica) {
    return bool_at(replica, "/ready") && !integer_at(replica, "/previousGeneration");
  };  // the current generation serves, not the previous one
  if (!serves(after) || (same && serves(before))) return;
  batched.ready.push_back(index);
  const auto startup = startup_from_json(at(after, "/startupSeconds"));
  if (startup && (!batched.slowest || startup->total() > batched.slowest->total())) batched.slowest = startup;
}

}  // namespace

std::vector<Event> status_events(const Json& before, const Json& after) {
  std::vector<Event> out;
  condition_events(before, after, out);
  const Json& replicas = at(after, "/replicaStatuses");
  if (!replicas.is_array()) return out;
  BatchedEvents batched;
  for (const Json& replica : replicas) {
    const Json& old = with_index(at(before, "/replicaStatuses"), integer_at(replica, "/index"));
    replica_events(old, replica, at(after, "/lastFailure"), batched, out);
  }
  for (const auto& [replica_generation, replicas_of_it] : batched.started) {
    out.push_back({false, "ReplicaStarted", "Start",
                   clip("all pods of " + named(replicas_of_it) + ", generation " + std::to_string(replica_generation) +
                            ", are made",
                        1000)});
  }
  if (batched.ready.empty()) return out;
  std::string note = clip(named(batched.ready), 700) + (batched.ready.size() == 1 ? " serves" : " serve");
  if (batched.slowest)
    note += (batched.ready.size() == 1 ? " after " : "; the slowest started in ") + to_text(*batched.slowest);
  out.push_back({false, "ReplicaReady", "Serve", note});
  return out;
}

std::vector<StageTime> new_stage_times(const Json& before, const Json& after) {
  std::vector<StageTime> out;
  const auto fetched = integer_at(after, "/fetchSeconds");
  if (fetched && integer_at(before, "/fetchSeconds") != fetched)
    out.push_back({"fetched", static_cast<double>(*fetched)});
  const Json& replicas = at(after, "/replicaStatuses");
  if (!replicas.is_array()) return out;
  for (const Json& replica : replicas) {
    const auto startup = startup_from_json(at(replica, "/startupSeconds"));
    const Json& old = with_index(at(before, "/replicaStatuses"), integer_at(replica, "/index"));
    const bool known = at(old, "/startupSeconds").is_object() &&
                       integer_at(old, "/replicaGeneration") == integer_at(replica, "/replicaGeneration");
    if (!startup || known) continue;
    const Json stages = to_json(*startup);
    for (const auto& [stage, seconds] : stages.items()) out.push_back({stage, seconds.get<double>()});
  }
  return out;
}

}  // namespace pm::op
