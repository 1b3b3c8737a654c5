// What people are told of the step from one status to the next.
#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "controller/core/conditions.h"
#include "controller/core/object.h"
#include "controller/operator/status.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

struct Change {
  std::string before, after, message;   ///< "True/Reason"
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

void tell_conditions(const Json& before, const Json& after, std::vector<Event>& out) {
  const Change planned = condition_change(before, after, "Planned");
  const bool new_plan = k8s::string_at(before, "/plan/planHash") != k8s::string_at(after, "/plan/planHash");
  if (planned.now_true && (new_plan || planned.before != planned.after)) out.push_back({false, "PlanChosen", "Plan", planned.message});
  if (!planned.now_true && planned.before != planned.after && reason_of(planned.after) != "Inspecting") {
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
    static constexpr std::array troubles{"ChecksumMismatch", "InsufficientStorage", "SourceUnreachable", "AuthFailed", "RevisionNotFound", "VolumeNotWritable"};
    const bool trouble = std::find(troubles.begin(), troubles.end(), held) != troubles.end() && held != reason_of(planned.after);
    if (trouble || held == "Fetching") out.push_back({trouble, held, "Fetch", loaded.message});
  }
  const std::string why = reason_of(scheduled.after);
  if (!scheduled.now_true && scheduled.before != scheduled.after &&
      (why == "InsufficientDevices" || why == "Unschedulable" || why == "QuotaExceeded" || why == "ImagePullFailed" || why == "VolumeNotMounted")) {
    out.push_back({true, why, "Schedule", scheduled.message});
  }
}

/// Groups to which the same happened in one pass: one Event tells of all of them, for Events were a fifth of all writes where a thousand models grew.
struct Together {
  std::map<int64_t, std::vector<int64_t>> started;    ///< by incarnation
  std::vector<int64_t> ready;
};

/// "group 3"; "groups 0, 2 to 5"
std::string named(const std::vector<int64_t>& ascending) {
  std::string out = ascending.size() == 1 ? "group " : "groups ";
  for (size_t begin = 0, end = 0; begin < ascending.size(); begin = end) {
    while (end < ascending.size() && ascending[end] - ascending[begin] == static_cast<int64_t>(end - begin)) ++end;
    out += (begin ? ", " : "") + std::to_string(ascending[begin]);
    if (end - begin > 1) out += (end - begin > 2 ? " to " : ", ") + std::to_string(ascending[end - 1]);
  }
  return out;
}

void tell_group(const Json& before, const Json& after, const Json& failure, Together& together, std::vector<Event>& out) {
  const int64_t index = integer_at(after, "/index").value_or(0);
  const std::string name = "group " + std::to_string(index);
  const int64_t from = integer_at(before, "/incarnation").value_or(0), to = integer_at(after, "/incarnation").value_or(0);
  if (to < from) {
    out.push_back({false, "GroupRestored", "Replace", name + " stays incarnation " + std::to_string(to) + ", which serves: the update was taken back before incarnation " + std::to_string(from) + " did"});
    return;
  }
  if (to > from && before.is_object()) {
    if (k8s::string_at(after, "/reason") == "ScalingDown") {
      out.push_back({false, "GroupScaledDown", "Scale", name + " is more than spec.replicas asks for: its pods finish their requests and end"});
    } else if (integer_at(after, "/waits").value_or(0) > integer_at(before, "/waits").value_or(0)) {
      out.push_back({true, "GroupWaiting", "GiveBack", name + ": not all of its pods found a node, so that all were given back; the next try is at " + k8s::string_at(after, "/waitUntil")});
    } else if (integer_at(before, "/former") && !integer_at(after, "/former") && k8s::string_at(before, "/podHash") == k8s::string_at(after, "/podHash")) {
      out.push_back({true, "GroupReplacedInPlace", "Replace", name + " is replaced in place and does not serve meanwhile: there was no room for its next incarnation beside it"});
    } else if (k8s::string_at(before, "/podHash") != k8s::string_at(after, "/podHash")) {
      out.push_back({false, "GroupUpdated", "Replace", name + " is made again from the present spec, as incarnation " + std::to_string(to)});
    } else {
      out.push_back({true, "GroupRestarted", "Restart", name + " is made again as incarnation " + std::to_string(to) + ": " +
                                                           k8s::string_at(failure, "/reason") + ": " + clip(k8s::string_at(failure, "/message"), 500)});
    }
  }
  const bool same = to == from;
  if (bool_at(after, "/created") && !(same && bool_at(before, "/created"))) together.started[to].push_back(index);
  const auto serves = [](const Json& group) { return bool_at(group, "/ready") && !integer_at(group, "/former"); };   // itself, not a former incarnation
  if (serves(after) && !(same && serves(before))) together.ready.push_back(index);
}

}  // namespace

std::vector<Event> events_of(const Json& before, const Json& after) {
  std::vector<Event> out;
  tell_conditions(before, after, out);
  const Json& groups = at(after, "/groups");
  if (!groups.is_array()) return out;
  Together together;
  for (const Json& group : groups) {
    const Json* old = &at(Json(), "/none");
    if (const Json& olds = at(before, "/groups"); olds.is_array()) {
      for (const Json& candidate : olds) {
        if (integer_at(candidate, "/index") == integer_at(group, "/index")) old = &candidate;
      }
    }
    tell_group(*old, group, at(after, "/lastFailure"), together, out);
  }
  for (const auto& [incarnation, groups_of_it] : together.started) {
    out.push_back({false, "GroupStarted", "Start", clip("all pods of " + named(groups_of_it) + ", incarnation " + std::to_string(incarnation) + ", are made", 1000)});
  }
  if (!together.ready.empty()) out.push_back({false, "GroupReady", "Serve", clip(named(together.ready) + (together.ready.size() == 1 ? " serves" : " serve"), 1000)});
  return out;
}

}  // namespace pm::op
