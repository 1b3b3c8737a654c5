// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/replicas/replica_health.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "controller/core/conditions.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/requests.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/planning/fetching.h"
#include "controller/operator/replicas/evacuation.h"

namespace pm::op {

namespace {

using std::chrono::seconds;
constexpr int survivors_grace = 5;

class ReplicaPlanner {
 public:
  explicit ReplicaPlanner(const ReplicaInputs& view)
      : in_(view), now_(view.snapshot.now), leave_(nodes_to_leave(view.spec, view.snapshot)), health_(view, out_.wake) {
    out_.pods = view.pods;
  }

  ReplicaPlan run() {
    collect();
    for (auto& [index, replica] : replicas_) health_.assess(replica);
    for (auto& [index, replica] : replicas_) restart(replica);
    for (auto& [index, replica] : replicas_) release(replica);
    for (auto& [index, replica] : replicas_) scale_down(replica);
    roll_out();
    for (auto& [index, replica] : replicas_) health_.describe(replica);
    for (auto& [index, replica] : replicas_) plan_actions(replica);
    finish();
    return std::move(out_);
  }

 private:
  bool wanted_index(int index) const { return health_.wanted_index(index); }
  void wake(k8s::WallTime when) { out_.wake = out_.wake ? std::min(*out_.wake, when) : when; }

  void collect() {
    for (const ReplicaRecord& record : in_.records) replicas_[record.index] = {.record = record, .in_status = true};
    std::map<int, const PodState*> newest;
    for (const PodState& pod : out_.pods) {
      const PodState*& best = newest[pod.replica];
      if (!best || pod.replica_generation > best->replica_generation) best = &pod;
    }
    for (const auto& [index, pod] : newest) adopt(index, *pod);
    for (int index = 0; in_.wanted && index < in_.spec.replicas; ++index) {
      if (!replicas_.contains(index)) replicas_[index] = {.record = {.index = index, .pod_hash = in_.wanted->hash}};
    }
    for (const PodState& pod : out_.pods) {
      Replica& replica = replicas_[pod.replica];
      const bool previous = replica.record.previous && pod.replica_generation == replica.record.previous;
      (pod.replica_generation == replica.record.replica_generation ? replica.pods
       : previous                                                  ? replica.previous_pods
                                                                   : replica.earlier_pods)
          .push_back(&pod);
    }
    for (auto& [index, replica] : replicas_) {
      replica.up_to_date = in_.wanted && replica.record.pod_hash == in_.wanted->hash;
      if (replica.up_to_date)
        replica.nodes = in_.wanted->inputs.layout.nodes();
      else if (!replica.pods.empty())
        replica.nodes = replica.pods.front()->nodes;
      else
        replica.nodes = static_cast<int>(std::max<size_t>(1, replica.record.nodes.size()));
    }
  }

  /// Adopts pods that are newer than the status. A lost or stale status must not create a second live generation.
  void adopt(int index, const PodState& newest) {
    Replica& replica = replicas_[index];
    if (replica.in_status && replica.record.last() >= newest.replica_generation) return;
    replica.record.index = index;
    replica.record.replica_generation = std::max<int64_t>(1, newest.replica_generation);
    replica.record.pod_hash = newest.hash;
    replica.record.created = true;
    replica.record.previous = replica.record.abandoned = 0;
    replica.record.surge_since.reset();
    replica.record.forget_start();
    replica.record.ranks.clear();
  }

  /// Ends the current generation. Pods of a serving previous generation stay.
  void start_next_generation(Replica& replica, const std::string& reason) {
    ReplicaRecord& record = replica.record;
    record.replica_generation = record.last() + 1;
    record.abandoned = 0;
    record.created = false;
    record.ready = replica.previous_serves();
    record.forget_start();
    record.nodes.clear();
    record.ranks.clear();
    record.reason = reason;
    record.pod_hash = in_.wanted->hash;
    if (record.previous) record.surge_since = std::chrono::floor<seconds>(now_);
    replica.up_to_date = true;
    replica.earlier_pods.insert(replica.earlier_pods.end(), replica.pods.begin(), replica.pods.end());
    replica.pods.clear();
    replica.nodes = in_.wanted->inputs.layout.nodes();
  }

  void surge(Replica& replica, const std::string& reason) {
    replica.record.previous = replica.record.replica_generation;
    replica.previous_pods = std::move(replica.pods);
    replica.pods.clear();
    start_next_generation(replica, reason);
  }

  /// Returns true when the previous generation serves and has the desired pod hash again.
  bool previous_is_wanted(const Replica& replica) const {
    return replica.previous_serves() && std::all_of(replica.previous_pods.begin(), replica.previous_pods.end(),
                                                    [&](const PodState* pod) { return pod->hash == in_.wanted->hash; });
  }

  /// Reverts an update: the serving generation becomes the current one again, and the pods of its successor are
  /// deleted.
  void revert(Replica& replica) {
    ReplicaRecord& record = replica.record;
    record.abandoned = record.last();
    record.replica_generation = std::exchange(record.previous, 0);
    record.created = true;
    record.surge_since.reset();
    record.forget_start();
    record.nodes.clear();
    record.ranks.clear();
    record.reason = name_of(Reason::Updating);
    record.pod_hash = in_.wanted->hash;
    replica.up_to_date = true;
    replica.earlier_pods.insert(replica.earlier_pods.end(), replica.pods.begin(), replica.pods.end());
    replica.pods = std::exchange(replica.previous_pods, {});
    replica.nodes = in_.wanted->inputs.layout.nodes();
    health_.assess(replica);
  }

  void replace_in_place(Replica& replica) {
    replica.record.previous = 0;
    replica.record.surge_since.reset();
    replica.earlier_pods.insert(replica.earlier_pods.end(), replica.previous_pods.begin(), replica.previous_pods.end());
    replica.previous_pods.clear();
    start_next_generation(replica, name_of(Reason::Updating));
  }

  void restart(Replica& replica) {
    if (!replica.loss) return;
    ReplicaRecord& record = replica.record;
    record.ready = replica.previous_serves();
    const bool planned = replica.loss->reason == Reason::Disrupted;
    if (!planned && (record.reason != replica.loss->reason || in_.wanted)) {
      out_.failure = {record.index, record.replica_generation, *replica.loss, replica.loss->at.value_or(now_)};
    }
    record.reason = replica.loss->reason;
    record.message = replica.loss->message;
    if (!replica.up_to_date) return;  // roll_out() replaces it, or it stays as it is until there is a plan
    if (planned) {
      record.disruptions += 1;
      record.disruption = replica.loss->message;
      return start_next_generation(replica, replica.loss->reason);
    }
    auto& times = record.restart_times;
    std::erase_if(times, [&](k8s::WallTime time) { return time + in_.spec.failure.window < now_; });
    if (static_cast<int>(times.size()) >= in_.spec.failure.max_restarts) {
      record.reason = name_of(Reason::RestartBudgetExhausted);
      return;
    }
    times.push_back(std::chrono::floor<seconds>(now_));
    record.restarts += 1;
    start_next_generation(replica, replica.loss->reason);
  }

  /// Two replicas that each hold some of the devices that the other needs would wait for ever. So a replica that does
  /// not get all of its nodes releases those that it has.
  void release(Replica& replica) {
    if (!replica.up_to_date || replica.loss || !wanted_index(replica.record.index) ||
        replica.has_exhausted_restarts(in_.spec.failure))
      return;
    const int bound = replica.bound_pods();
    if (bound == 0 || bound >= replica.nodes) return;
    k8s::WallTime first = now_;
    for (const PodState* pod : replica.pods) {
      if (pod->bound()) first = std::min(first, pod->bound_since.value_or(now_));
    }
    const k8s::WallTime end = first + in_.spec.scheduling.timeout;
    if (now_ < end) return wake(end);
    ReplicaRecord& record = replica.record;
    const FailurePolicy& policy = in_.spec.failure;
    const double wait = std::min(static_cast<double>(policy.backoff_max.count()),
                                 static_cast<double>(policy.backoff_base.count()) *
                                     std::pow(2.0, static_cast<double>(std::min<int64_t>(record.waits, 30))));
    record.waits += 1;
    start_next_generation(replica, name_of(Reason::ReplicaWaiting));
    record.wait_until =
        std::chrono::floor<seconds>(now_) + seconds(static_cast<int64_t>(std::ceil(wait * (0.5 + jitter(record)))));
  }

  /// Ends the generation of a replica beyond spec.replicas. The status is written before its pods are deleted, so a
  /// replica that is wanted again while they end loses no state.
  void scale_down(Replica& replica) {
    ReplicaRecord& record = replica.record;
    if (wanted_index(record.index) || (replica.pods.empty() && replica.previous_pods.empty())) return;
    if (!replica.pods.empty()) record.replica_generation = record.last() + 1, record.abandoned = 0;
    record.created = record.ready = false;
    record.previous = 0;
    record.surge_since.reset();
    record.forget_start();
    record.nodes.clear();
    record.ranks.clear();
    for (auto* pods : {&replica.pods, &replica.previous_pods}) {
      replica.earlier_pods.insert(replica.earlier_pods.end(), pods->begin(), pods->end());
      pods->clear();
    }
  }

  /// Returns a pseudo-random number in [0, 1) per replica and generation, which is the same after a crash.
  double jitter(const ReplicaRecord& record) const {
    const std::string text = short_hash({in_.wanted->inputs.owner.uid, record.index, record.replica_generation});
    return static_cast<double>(std::hash<std::string>{}(text) % 1000) / 1000;
  }

  void roll_out() {
    if (!in_.wanted) return;
    int down = 0, surging = 0;
    bool old_left = false;
    for (const auto& [index, replica] : replicas_) {
      if (!wanted_index(index)) continue;
      down += replica.record.ready ? 0 : 1;
      surging += replica.record.previous ? 1 : 0;
      old_left |= !replica.up_to_date || replica.record.previous;
      out_.exhausted |= replica.up_to_date && replica.record.reason == Reason::RestartBudgetExhausted;
    }
    out_.rollout_blocked = out_.exhausted && old_left;
    const auto may_go_down = [&](const Replica& replica) {
      return !replica.record.ready || (!out_.rollout_blocked && down < in_.spec.update.max_unavailable);
    };
    for (auto& [index, replica] : replicas_) {
      if (!wanted_index(index)) continue;
      if (replica.up_to_date) {
        if (replica.record.previous ? ends_move(replica) : leaves_node(replica, surging)) continue;
        if (!surge_timed_out(replica) || !may_go_down(replica)) continue;
        down += replica.record.ready ? 1 : 0;
        replace_in_place(replica);
        continue;
      }
      replica.record.waits = 0, replica.record.wait_until.reset();
      if (replica.record.previous) {  // the spec changed again during an update
        replica.record.restart_times.clear();
        if (previous_is_wanted(replica))
          revert(replica);  // its surge slot is free from the next reconcile on
        else
          start_next_generation(replica, name_of(Reason::Updating));
        continue;
      }
      const bool serves = replica.record.ready, beside = serves && in_.spec.update.max_surge > 0;
      if (serves && (out_.rollout_blocked || (beside ? surging >= in_.spec.update.max_surge : !may_go_down(replica))))
        continue;
      replica.record.restart_times.clear();
      beside ? ++surging : down += serves ? 1 : 0;
      beside ? surge(replica, name_of(Reason::Updating)) : replace_in_place(replica);
    }
  }

  /// Returns true when a surge found no room beside the serving generation within its timeout. The wait for a queue
  /// does not count.
  bool surge_timed_out(const Replica& replica) {
    const auto end = surge_end(replica.record, in_.spec);
    if (!end || replica.bound_pods() >= replica.nodes || replica.record.reason == Reason::RestartBudgetExhausted ||
        replica.waits_in_queue())
      return false;
    if (now_ < *end) wake(*end);
    return now_ >= *end;
  }

  bool is_on_node_to_leave(const std::vector<const PodState*>& pods) const {
    return std::any_of(pods.begin(), pods.end(), [&](const PodState* pod) { return leave_.contains(pod->node); });
  }

  /// Starts the move of a replica that serves on a node to leave. Returns true when it moves, or waits for its turn.
  bool leaves_node(Replica& replica, int& surging) {
    if (!replica.serves() || out_.rollout_blocked || !is_on_node_to_leave(replica.pods)) return false;
    if (surging >= in_.spec.update.max_surge) return true;
    ++surging;
    for (const PodState* pod : replica.pods) {
      if (leave_.contains(pod->node)) out_.left_nodes.insert(pod->node);
    }
    surge(replica, name_of(Reason::Moving));
    return true;
  }

  /// Returns true for a replica that moves. Its move ends when its nodes need not be left any more.
  bool ends_move(Replica& replica) {
    if (!replica.moves()) return false;
    if (!is_on_node_to_leave(replica.previous_pods)) {
      revert(replica);
    } else if (const auto end = surge_end(replica.record, in_.spec); end && now_ < *end) {
      wake(*end);  // evictions may go on from then on, and the message says so
    }
    return true;
  }

  void plan_actions(Replica& replica) {
    const ReplicaRecord& record = replica.record;
    if (!wanted_index(record.index)) {
      for (const PodState* pod : replica.earlier_pods) {
        if (!pod->deleting) out_.actions.push_back(remove(k8s::pods_resource, *pod->object));
      }
      return;
    }
    for (const PodState* pod : replica.earlier_pods) {
      if (pod->deleting) continue;
      const bool drains = pod->ready && is_replaced(replica, *pod);
      out_.actions.push_back(
          remove(k8s::pods_resource, *pod->object, drains ? std::nullopt : std::optional<int>(survivors_grace)));
    }
    if (record.reason == Reason::RestartBudgetExhausted) {
      for (const PodState* pod : replica.pods) {
        if (pod->live() && !pod->deleting)
          out_.actions.push_back(remove(k8s::pods_resource, *pod->object, survivors_grace));
      }
      return;
    }
    create_pods(replica);
    form_group(replica);
  }

  void form_group(const Replica& replica) {
    if (static_cast<int>(replica.pods.size()) != replica.nodes || replica.bound_pods() == replica.nodes) return;
    std::vector<k8s::ObjectPtr> members;
    for (const PodState* pod : replica.pods) {
      if (pod->pod_group.empty() || pod->deleting) return;
      members.push_back(pod->object);
    }
    out_.pod_groups.push_back(pod_group(replica.pods.front()->pod_group, members));
  }

  /// Returns true for a pod of a generation that was not lost: it may finish its requests.
  static bool is_replaced(const Replica& replica, const PodState& pod) {
    return pod.hash != replica.record.pod_hash || replica.serves() ||
           std::any_of(replica.earlier_pods.begin(), replica.earlier_pods.end(), [&](const PodState* other) {
             return other->replica_generation == pod.replica_generation && !other->disruption.empty();
           });
  }

  void create_pods(const Replica& replica) {
    const ReplicaRecord& record = replica.record;
    const k8s::WallTime earliest =
        std::max(backoff_until(record, in_.spec.failure), record.wait_until.value_or(k8s::WallTime{}));
    if (!replica.up_to_date || record.created || now_ < earliest) return;
    if (std::any_of(replica.earlier_pods.begin(), replica.earlier_pods.end(),
                    [](const PodState* pod) { return pod->live(); }))
      return;
    for (const PodState* pod : replica.earlier_pods) {
      if (pod->fenced && !pod->exit) out_.dead_nodes.insert(pod->node);
    }
    for (int node = 0; node < replica.nodes; ++node) {
      const auto here = [&](const PodState* pod) { return pod->node_rank == node; };
      if (std::any_of(replica.pods.begin(), replica.pods.end(), here)) continue;
      out_.actions.push_back(
          create(replica_pod(in_.wanted->inputs, record.index, node, record.replica_generation, in_.wanted->hash)));
    }
  }

  void finish() {
    for (auto& [index, replica] : replicas_) {
      const bool forget = !wanted_index(index) && replica.earlier_pods.empty();
      if (!forget) out_.records.push_back(std::move(replica.record));
    }
    const auto matters = [](const ReplicaRecord& a, const ReplicaRecord& b) {
      return a.index == b.index && a.replica_generation == b.replica_generation && a.previous == b.previous &&
             a.surge_since == b.surge_since && a.waits == b.waits && a.wait_until == b.wait_until &&
             a.pod_hash == b.pod_hash && a.restarts == b.restarts && a.restart_times == b.restart_times &&
             a.disruptions == b.disruptions &&
             (a.reason == Reason::RestartBudgetExhausted) == (b.reason == Reason::RestartBudgetExhausted);
    };
    out_.commit = out_.records.size() != in_.records.size() ||
                  !std::equal(out_.records.begin(), out_.records.end(), in_.records.begin(), matters);
  }

  const ReplicaInputs& in_;
  const k8s::WallTime now_;
  const std::set<std::string> leave_;
  std::map<int, Replica> replicas_;
  ReplicaPlan out_;
  ReplicaHealth health_;
};

}  // namespace

const ReplicaRecord* ReplicaPlan::find(int index) const {
  const auto found =
      std::find_if(records.begin(), records.end(), [&](const ReplicaRecord& record) { return record.index == index; });
  return found == records.end() ? nullptr : &*found;
}

k8s::WallTime backoff_until(const ReplicaRecord& record, const FailurePolicy& policy) {
  if (record.restart_times.empty()) return {};
  const k8s::WallTime last = record.restart_times.back();
  const auto recent = std::count_if(record.restart_times.begin(), record.restart_times.end(),
                                    [&](k8s::WallTime time) { return time + policy.window >= last; });
  if (recent < 2) return last;
  const double wait =
      std::min(static_cast<double>(policy.backoff_max.count()),
               static_cast<double>(policy.backoff_base.count()) * std::pow(2.0, static_cast<double>(recent - 2)));
  return last + seconds(static_cast<int64_t>(wait));
}

ReplicaPlan plan_replicas(const ReplicaInputs& view) { return ReplicaPlanner(view).run(); }

std::vector<k8s::ObjectPtr> pods_to_probe(const Snapshot& snapshot) {
  std::vector<k8s::ObjectPtr> out;
  if (!snapshot.model) return out;
  const auto records = replica_records(*snapshot.model);
  const Json* reconciling = k8s::find_condition(at(*snapshot.model, "/status/conditions"), "Reconciling");
  const auto settled =
      reconciling ? k8s::parse_time(k8s::string_at(*reconciling, "/lastTransitionTime")) : std::nullopt;
  for (const PodState& pod : worker_pods(snapshot)) {
    if (pod.node_rank != 0 || !pod.running_since || pod.exit || pod.deleting ||
        k8s::string_at(*pod.object, "/status/podIP").empty())
      continue;
    const auto own = std::find_if(records.begin(), records.end(),
                                  [&](const ReplicaRecord& record) { return record.index == pod.replica; });
    if (own == records.end() || own->replica_generation != pod.replica_generation) continue;
    const auto since = own->abandoned ? std::max(pod.ready_since, settled)
                                      : pod.ready_since;  // a reverted update left it serving: it is polled again
    const bool unknown = own->ranks.empty() || std::any_of(own->ranks.begin(), own->ranks.end(),
                                                           [](const RankRecord& rank) { return !rank.measured; });
    const bool fresh =
        !since || *since + seconds(60) > snapshot.now;  // a worker that never reports is not polled for ever
    if ((!pod.ready && !own->load_seconds) || (pod.ready && (unknown || !own->startup) && fresh))
      out.push_back(pod.object);
  }
  for (const auto& pod : snapshot.pods) {
    if (k8s::label_of(*pod, label::role) == "fetch" && fetches(pod_state(pod, snapshot))) out.push_back(pod);
  }
  return out;
}

}  // namespace pm::op
