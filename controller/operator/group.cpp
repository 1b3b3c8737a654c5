#include "controller/operator/group_judge.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "controller/core/conditions.h"
#include "controller/operator/fetching.h"
#include "controller/operator/hash.h"
#include "controller/operator/requests.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

using std::chrono::seconds;
constexpr int survivors_grace = 5;

class Governor {
 public:
  explicit Governor(const GroupsView& view) : in_(view), now_(view.snapshot.now), judge_(view, out_.wake) { out_.pods = view.pods; }

  Groups run() {
    gather();
    for (auto& [index, group] : groups_) judge_.judge(group);
    for (auto& [index, group] : groups_) restart(group);
    for (auto& [index, group] : groups_) give_back(group);
    for (auto& [index, group] : groups_) retire(group);
    roll();
    for (auto& [index, group] : groups_) judge_.describe(group);
    for (auto& [index, group] : groups_) act(group);
    finish();
    return std::move(out_);
  }

 private:
  bool wanted_index(int index) const { return judge_.wanted_index(index); }
  void wake(k8s::WallTime when) { out_.wake = out_.wake ? std::min(*out_.wake, when) : when; }

  void gather() {
    for (const GroupRecord& record : in_.records) groups_[record.index] = {.record = record, .known = true};
    std::map<int, const PodState*> newest;
    for (const PodState& pod : out_.pods) {
      const PodState*& best = newest[pod.group];
      if (!best || pod.incarnation > best->incarnation) best = &pod;
    }
    for (const auto& [index, pod] : newest) adopt(index, *pod);
    for (int index = 0; in_.wanted && index < in_.spec.replicas; ++index) {
      if (!groups_.contains(index)) groups_[index] = {.record = {.index = index, .pod_hash = in_.wanted->hash}};
    }
    for (const PodState& pod : out_.pods) {
      Group& group = groups_[pod.group];
      const bool former = group.record.former && pod.incarnation == group.record.former;
      (pod.incarnation == group.record.incarnation ? group.now : former ? group.former : group.before).push_back(&pod);
    }
    for (auto& [index, group] : groups_) {
      group.current = in_.wanted && group.record.pod_hash == in_.wanted->hash;
      if (group.current) group.nodes = in_.wanted->inputs.layout.nodes();
      else if (!group.now.empty()) group.nodes = group.now.front()->nodes;
      else group.nodes = static_cast<int>(std::max<size_t>(1, group.record.nodes.size()));
    }
  }

  /// A status that was lost or is older than the pods must not lead to a second incarnation beside a living one.
  void adopt(int index, const PodState& newest) {
    Group& group = groups_[index];
    if (group.known && group.record.last() >= newest.incarnation) return;
    group.record.index = index;
    group.record.incarnation = std::max<int64_t>(1, newest.incarnation);
    group.record.pod_hash = newest.hash;
    group.record.created = true;
    group.record.former = group.record.given_up = 0;
    group.record.surge_since.reset();
    group.record.load_seconds.reset();
    group.record.ranks.clear();
  }

  /// The present pods are through; those of a former incarnation that serves stay.
  void next_incarnation(Group& group, const std::string& reason) {
    GroupRecord& record = group.record;
    record.incarnation = record.last() + 1;
    record.given_up = 0;
    record.created = false;
    record.ready = group.former_serves();
    record.load_seconds.reset();
    record.nodes.clear();
    record.ranks.clear();
    record.reason = reason;
    record.pod_hash = in_.wanted->hash;
    if (record.former) record.surge_since = std::chrono::floor<seconds>(now_);
    group.current = true;
    group.before.insert(group.before.end(), group.now.begin(), group.now.end());
    group.now.clear();
    group.nodes = in_.wanted->inputs.layout.nodes();
  }

  void surge(Group& group) {
    group.record.former = group.record.incarnation;
    group.former = std::move(group.now);
    group.now.clear();
    next_incarnation(group, "Updating");
  }

  /// What served before this update is what is wanted again.
  bool former_is_wanted(const Group& group) const {
    return group.former_serves() && std::all_of(group.former.begin(), group.former.end(), [&](const PodState* pod) { return pod->hash == in_.wanted->hash; });
  }

  /// The update is taken back: the incarnation that serves is the present one again, and its successor's pods go.
  void return_to_former(Group& group) {
    GroupRecord& record = group.record;
    record.given_up = record.last();
    record.incarnation = std::exchange(record.former, 0);
    record.created = true;
    record.surge_since.reset();
    record.load_seconds.reset();
    record.nodes.clear();
    record.ranks.clear();
    record.reason = "Updating";
    record.pod_hash = in_.wanted->hash;
    group.current = true;
    group.before.insert(group.before.end(), group.now.begin(), group.now.end());
    group.now = std::exchange(group.former, {});
    group.nodes = in_.wanted->inputs.layout.nodes();
    judge_.judge(group);
  }

  void replace_in_place(Group& group) {
    group.record.former = 0;
    group.record.surge_since.reset();
    group.before.insert(group.before.end(), group.former.begin(), group.former.end());
    group.former.clear();
    next_incarnation(group, "Updating");
  }

  void restart(Group& group) {
    if (!group.loss) return;
    GroupRecord& record = group.record;
    record.ready = group.former_serves();
    if (record.reason != group.loss->reason || in_.wanted) {
      out_.failure = {record.index, record.incarnation, *group.loss, group.loss->at.value_or(now_)};
    }
    record.reason = group.loss->reason;
    record.message = group.loss->message;
    if (!group.current) return;   // replaced by roll(), or kept as it is until there is a plan
    auto& times = record.restart_times;
    std::erase_if(times, [&](k8s::WallTime time) { return time + in_.spec.failure.window < now_; });
    if (static_cast<int>(times.size()) >= in_.spec.failure.max_restarts) {
      record.reason = BudgetExhausted;
      return;
    }
    times.push_back(std::chrono::floor<seconds>(now_));
    record.restarts += 1;
    next_incarnation(group, group.loss->reason);
  }

  /// Two groups that each hold a part of what the other needs would wait for ever: who does not get all of its nodes gives the others back.
  void give_back(Group& group) {
    if (!group.current || group.loss || !wanted_index(group.record.index) || group.given_up(in_.spec.failure)) return;
    const int bound = group.bound();
    if (bound == 0 || bound >= group.nodes) return;
    k8s::WallTime first = now_;
    for (const PodState* pod : group.now) {
      if (pod->bound()) first = std::min(first, pod->bound_since.value_or(now_));
    }
    const k8s::WallTime end = first + in_.spec.scheduling.timeout;
    if (now_ < end) return wake(end);
    GroupRecord& record = group.record;
    const FailurePolicy& policy = in_.spec.failure;
    const double wait = std::min(static_cast<double>(policy.backoff_max.count()),
                                 static_cast<double>(policy.backoff_base.count()) * std::pow(2.0, static_cast<double>(std::min<int64_t>(record.waits, 30))));
    record.waits += 1;
    next_incarnation(group, "GroupWaiting");
    record.wait_until = std::chrono::floor<seconds>(now_) + seconds(static_cast<int64_t>(std::ceil(wait * (0.5 + chance(record)))));
  }

  /// Beyond replicas: written before its pods are deleted, so that a group that is wanted again while they end has lost nothing.
  void retire(Group& group) {
    GroupRecord& record = group.record;
    if (wanted_index(record.index) || (group.now.empty() && group.former.empty())) return;
    if (!group.now.empty()) record.incarnation = record.last() + 1, record.given_up = 0;
    record.created = record.ready = false;
    record.former = 0;
    record.surge_since.reset();
    record.load_seconds.reset();
    record.nodes.clear();
    record.ranks.clear();
    for (auto* pods : {&group.now, &group.former}) {
      group.before.insert(group.before.end(), pods->begin(), pods->end());
      pods->clear();
    }
  }

  /// In [0, 1), another one for each group and try, and the same after a crash.
  double chance(const GroupRecord& record) const {
    const std::string text = hash_of({in_.wanted->inputs.owner.uid, record.index, record.incarnation});
    return static_cast<double>(std::hash<std::string>{}(text) % 1000) / 1000;
  }

  void roll() {
    if (!in_.wanted) return;
    int down = 0, surging = 0;
    bool old_left = false;
    for (const auto& [index, group] : groups_) {
      if (!wanted_index(index)) continue;
      down += group.record.ready ? 0 : 1;
      surging += group.record.former ? 1 : 0;
      old_left |= !group.current || group.record.former;
      out_.exhausted |= group.current && group.record.reason == BudgetExhausted;
    }
    out_.rollout_blocked = out_.exhausted && old_left;
    const auto may_go_down = [&](const Group& group) { return !group.record.ready || (!out_.rollout_blocked && down < in_.spec.update.max_unavailable); };
    for (auto& [index, group] : groups_) {
      if (!wanted_index(index)) continue;
      if (group.current) {
        if (!crowded_out(group) || !may_go_down(group)) continue;
        down += group.record.ready ? 1 : 0;
        replace_in_place(group);
        continue;
      }
      group.record.waits = 0, group.record.wait_until.reset();
      if (group.record.former) {   // changed again while it was being updated
        group.record.restart_times.clear();
        if (former_is_wanted(group)) return_to_former(group);   // its place for a surge is free from the next pass on
        else next_incarnation(group, "Updating");
        continue;
      }
      const bool serves = group.record.ready, beside = serves && in_.spec.update.max_surge > 0;
      if (serves && (out_.rollout_blocked || (beside ? surging >= in_.spec.update.max_surge : !may_go_down(group)))) continue;
      group.record.restart_times.clear();
      beside ? ++surging : down += serves ? 1 : 0;
      beside ? surge(group) : replace_in_place(group);
    }
  }

  /// Its update found no room beside what serves, for long enough.
  bool crowded_out(const Group& group) {
    const auto end = judge_.surge_end(group.record);
    if (!end || group.bound() >= group.nodes || group.record.reason == BudgetExhausted) return false;
    if (now_ < *end) wake(*end);
    return now_ >= *end;
  }

  void act(Group& group) {
    const GroupRecord& record = group.record;
    if (!wanted_index(record.index)) {
      for (const PodState* pod : group.before) {
        if (!pod->deleting) out_.actions.push_back(remove(k8s::Pods, *pod->object));
      }
      return;
    }
    for (const PodState* pod : group.before) {
      if (pod->deleting) continue;
      const bool drains = pod->ready && pod->hash != record.pod_hash;   // replaced, not lost: it may finish its requests
      out_.actions.push_back(remove(k8s::Pods, *pod->object, drains ? std::nullopt : std::optional<int>(survivors_grace)));
    }
    if (record.reason == BudgetExhausted) {
      for (const PodState* pod : group.now) {
        if (pod->live() && !pod->deleting) out_.actions.push_back(remove(k8s::Pods, *pod->object, survivors_grace));
      }
      return;
    }
    make(group);
  }

  void make(const Group& group) {
    const GroupRecord& record = group.record;
    const k8s::WallTime earliest = std::max(backoff_until(record, in_.spec.failure), record.wait_until.value_or(k8s::WallTime{}));
    if (!group.current || record.created || now_ < earliest) return;
    if (std::any_of(group.before.begin(), group.before.end(), [](const PodState* pod) { return pod->live(); })) return;
    for (const PodState* pod : group.before) {
      if (pod->fenced && !pod->exit) out_.dead_nodes.insert(pod->node);
    }
    for (int node = 0; node < group.nodes; ++node) {
      const auto here = [&](const PodState* pod) { return pod->node_rank == node; };
      if (std::any_of(group.now.begin(), group.now.end(), here)) continue;
      out_.actions.push_back(create(group_pod(in_.wanted->inputs, record.index, node, record.incarnation, in_.wanted->hash)));
    }
  }

  void finish() {
    for (auto& [index, group] : groups_) {
      const bool forget = !wanted_index(index) && group.before.empty();
      if (!forget) out_.records.push_back(std::move(group.record));
    }
    const auto matters = [](const GroupRecord& a, const GroupRecord& b) {
      return a.index == b.index && a.incarnation == b.incarnation && a.former == b.former && a.surge_since == b.surge_since && a.waits == b.waits &&
             a.wait_until == b.wait_until && a.pod_hash == b.pod_hash && a.restarts == b.restarts &&
             a.restart_times == b.restart_times && (a.reason == BudgetExhausted) == (b.reason == BudgetExhausted);
    };
    out_.commit = out_.records.size() != in_.records.size() || !std::equal(out_.records.begin(), out_.records.end(), in_.records.begin(), matters);
  }

  const GroupsView& in_;
  const k8s::WallTime now_;
  std::map<int, Group> groups_;
  Groups out_;
  Judge judge_;
};

}  // namespace

const GroupRecord* Groups::find(int index) const {
  const auto found = std::find_if(records.begin(), records.end(), [&](const GroupRecord& record) { return record.index == index; });
  return found == records.end() ? nullptr : &*found;
}

k8s::WallTime backoff_until(const GroupRecord& record, const FailurePolicy& policy) {
  if (record.restart_times.empty()) return {};
  const k8s::WallTime last = record.restart_times.back();
  const auto recent = std::count_if(record.restart_times.begin(), record.restart_times.end(), [&](k8s::WallTime time) { return time + policy.window >= last; });
  if (recent < 2) return last;
  const double wait = std::min(static_cast<double>(policy.backoff_max.count()),
                               static_cast<double>(policy.backoff_base.count()) * std::pow(2.0, static_cast<double>(recent - 2)));
  return last + seconds(static_cast<int64_t>(wait));
}

Groups govern(const GroupsView& view) { return Governor(view).run(); }

std::vector<k8s::ObjectPtr> pods_to_probe(const Snapshot& snapshot) {
  std::vector<k8s::ObjectPtr> out;
  if (!snapshot.model) return out;
  const auto records = group_records(*snapshot.model);
  const Json* reconciling = k8s::find_condition(at(*snapshot.model, "/status/conditions"), "Reconciling");
  const auto settled = reconciling ? k8s::parse_time(k8s::string_at(*reconciling, "/lastTransitionTime")) : std::nullopt;
  for (const PodState& pod : worker_pods(snapshot)) {
    if (pod.node_rank != 0 || !pod.running_since || pod.exit || pod.deleting || k8s::string_at(*pod.object, "/status/podIP").empty()) continue;
    const auto own = std::find_if(records.begin(), records.end(), [&](const GroupRecord& record) { return record.index == pod.group; });
    if (own == records.end() || own->incarnation != pod.incarnation) continue;
    const auto since = own->given_up ? std::max(pod.ready_since, settled) : pod.ready_since;   // what an update taken back left serving is asked anew
    const bool unknown = own->ranks.empty() || std::any_of(own->ranks.begin(), own->ranks.end(), [](const RankRecord& rank) { return !rank.measured; });
    const bool fresh = !since || *since + seconds(60) > snapshot.now;   // a worker that never says is not asked for ever
    if ((!pod.ready && !own->load_seconds) || (pod.ready && unknown && fresh)) out.push_back(pod.object);
  }
  for (const auto& pod : snapshot.pods) {
    if (k8s::label_of(*pod, label::role) == "fetch" && fetches(pod_state(pod, snapshot))) out.push_back(pod);
  }
  return out;
}

}  // namespace pm::op
