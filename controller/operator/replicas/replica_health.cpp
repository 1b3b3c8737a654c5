// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/replicas/replica_health.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace pm::op {

namespace {

bool all_ready(const std::vector<const PodState*>& pods) {
  return std::all_of(pods.begin(), pods.end(), [](const PodState* pod) { return pod->ready; });
}

/// Returns true when all pods of a generation exist and none of them has ended or is being deleted.
bool is_intact(const std::vector<const PodState*>& pods) {
  if (pods.empty() || static_cast<int>(pods.size()) < pods.front()->nodes) return false;
  return std::none_of(pods.begin(), pods.end(), [](const PodState* pod) { return pod->exit || pod->deleting; });
}

}  // namespace

bool Replica::serves() const { return is_complete() && all_ready(pods); }

bool Replica::previous_serves() const {
  return record.previous && is_intact(previous_pods) && all_ready(previous_pods);
}

bool Replica::moves() const {
  return previous_serves() && std::all_of(previous_pods.begin(), previous_pods.end(),
                                          [&](const PodState* pod) { return pod->hash == record.pod_hash; });
}

int Replica::bound_pods() const {
  return static_cast<int>(std::count_if(pods.begin(), pods.end(), [](const PodState* pod) { return pod->bound(); }));
}

bool Replica::waits_in_queue() const {
  return std::any_of(pods.begin(), pods.end(), [](const PodState* pod) { return pod->gated; });
}

bool Replica::has_exhausted_restarts(const FailurePolicy& policy) const {
  return record.reason == Reason::RestartBudgetExhausted &&
         static_cast<int>(record.restart_times.size()) >= policy.max_restarts;
}

void ReplicaHealth::assess(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  if (replica.is_complete()) record.created = true;
  end_surge(replica);
  record.ready = replica.serves() || replica.previous_serves();
  if (!wanted_index(record.index)) return;
  update_nodes(replica);
  update_ranks(replica);
  if (replica.bound_pods() >= replica.nodes) record.waits = 0, record.wait_until.reset();
  if (replica.serves() && !record.load_seconds) record.load_seconds = load_time(replica);
  record.loaded = record.ready;
  if (replica.has_exhausted_restarts(in_.spec.failure) && !replica.serves()) return;
  replica.loss = first_failure(replica);
  if (!replica.loss && !replica.serves()) check_start_timeout(replica);
  const auto progress = progress_of(replica);
  if (replica.serves() && !record.startup && progress && progress->all_ready() && progress->load_seconds)
    record.startup = startup_of(replica.pods, *progress->load_seconds);
  record.loaded |=
      !replica.loss && ((record.load_seconds && replica.is_complete()) || (progress && progress->all_ready()));
}

/// The surge ends once the current generation serves, or when the previous one is lost itself.
void ReplicaHealth::end_surge(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  if (!record.previous || (!replica.serves() && is_intact(replica.previous_pods))) return;
  record.previous = 0;
  record.surge_since.reset();
  replica.earlier_pods.insert(replica.earlier_pods.end(), replica.previous_pods.begin(), replica.previous_pods.end());
  replica.previous_pods.clear();
}

void ReplicaHealth::update_nodes(Replica& replica) const {
  if (replica.pods.empty()) return;
  replica.record.nodes.resize(static_cast<size_t>(replica.nodes));
  for (const PodState* pod : replica.pods) {  // the node name of a pod that vanished remains
    if (pod->node_rank < replica.nodes) replica.record.nodes[static_cast<size_t>(pod->node_rank)] = pod->node;
  }
}

/// Records the memory of every rank: the prediction of the plan at first, the measurement once the worker reports it.
void ReplicaHealth::update_ranks(Replica& replica) const {
  ReplicaRecord& record = replica.record;
  if (!replica.up_to_date || replica.pods.empty() || in_.spec.replicas * ranks_of(plan()) > 512) return;
  if (record.ranks.size() != plan().ranks.size()) {
    record.ranks.clear();
    for (const RankPlan& rank : plan().ranks)
      record.ranks.push_back({rank.rank, "", plan().device_memory, rank.predicted, std::nullopt});
  }
  const auto progress = progress_of(replica);
  for (RankRecord& rank : record.ranks) {
    const size_t node = static_cast<size_t>(in_.wanted->inputs.layout.node_of(rank.rank));
    if (node < record.nodes.size()) rank.node = record.nodes[node];
    if (rank.measured || !progress) continue;
    const auto found = progress->ranks.find(rank.rank);
    if (found != progress->ranks.end()) rank.measured = found->second.measured;
  }
}

std::optional<Progress> ReplicaHealth::progress_of(const Replica& replica) const {
  for (const PodState* pod : replica.pods) {
    const auto probe = pod->node_rank == 0 ? in_.snapshot.probes.find(pod->name) : in_.snapshot.probes.end();
    if (probe != in_.snapshot.probes.end() && in_.wanted)
      return op::progress_of(probe->second, replica.record.replica_generation, ranks_of(plan()));
  }
  return std::nullopt;
}

double ReplicaHealth::load_time(const Replica& replica) const {
  k8s::WallTime begin{}, end{};
  for (const PodState* pod : replica.pods) {
    begin = std::max(begin, pod->running_since.value_or(now_));
    end = std::max(end, pod->ready_since.value_or(now_));
  }
  return std::max(0.0, std::round(std::chrono::duration<double>(end - begin).count() * 10) / 10);
}

/// Returns the root cause of a loss. An exit with a reason of its own comes before exits that follow from it; a missing
/// pod counts only if no container ended.
std::optional<Exit> ReplicaHealth::first_failure(const Replica& replica) const {
  if (auto planned = disruption(replica)) return planned;
  const PodState* first = nullptr;
  const auto consequence = [](const Exit& exit) {
    return exit.reason == Reason::CommunicatorAborted || exit.code == 0;
  };
  for (const PodState* pod : replica.pods) {
    if (!pod->exit) continue;
    if (!first || (consequence(*first->exit) && !consequence(*pod->exit))) first = pod;
  }
  if (first) return first->exit;
  for (const PodState* pod : replica.pods) {
    if (!pod->deleting) continue;
    if (!node_ready(in_.snapshot, pod->node) && pod->bound())
      return Exit{name_of(Reason::NodeLost),
                  "node " + pod->node + " of pod " + pod->name + " is gone or not ready",
                  {},
                  {},
                  {}};
    return Exit{name_of(Reason::RankLost), "pod " + pod->name + " is being deleted", {}, {}, {}};
  }
  if (!replica.record.created || replica.is_complete()) return unhealthy_device(replica);
  for (int node = 0; node < replica.nodes; ++node) {
    const auto here = [&](const PodState* pod) { return pod->node_rank == node; };
    if (std::any_of(replica.pods.begin(), replica.pods.end(), here)) continue;
    const std::string where =
        node < static_cast<int>(replica.record.nodes.size()) ? replica.record.nodes[static_cast<size_t>(node)] : "";
    const bool lost_node = !where.empty() && !node_ready(in_.snapshot, where);
    return Exit{
        lost_node ? name_of(Reason::NodeLost) : name_of(Reason::RankLost),
        "pod " + std::to_string(node) + " of the replica vanished" + (where.empty() ? "" : " from node " + where),
        {},
        {},
        {}};
  }
  return std::nullopt;
}

/// Kubernetes announces an end on purpose before the pod ends. The ends of other pods of the replica follow from it.
/// Pods of a node that failed are deleted because of its taint, or collected; that is a failure all the same.
std::optional<Exit> ReplicaHealth::disruption(const Replica& replica) const {
  for (const PodState* pod : replica.pods) {
    if (pod->disruption.empty() || (!pod->deleting && !pod->exit)) continue;
    if (pod->disruption.starts_with("DeletionBy") && pod->bound() && !node_ready(in_.snapshot, pod->node)) continue;
    return Exit{name_of(Reason::Disrupted),
                "pod " + pod->name + (pod->bound() ? " on node " + pod->node : "") + " is ended: " + pod->disruption,
                {},
                {},
                {}};
  }
  return std::nullopt;
}

/// A device that its plugin calls unhealthy is not allocated again, so the next pods get others.
std::optional<Exit> ReplicaHealth::unhealthy_device(const Replica& replica) const {
  for (const PodState* pod : replica.pods) {
    if (pod->unhealthy_device.empty()) continue;
    return Exit{name_of(Reason::DeviceFault),
                "device " + pod->unhealthy_device + " of pod " + pod->name + " on node " + pod->node +
                    " is unhealthy, as its device plugin or driver reports",
                {},
                {},
                {}};
  }
  return std::nullopt;
}

/// Enforces failure.startSeconds, which counts from the start of the last pod. Kubelets do not enforce it.
void ReplicaHealth::check_start_timeout(Replica& replica) const {
  if (!replica.is_complete() || replica.record.load_seconds) return;
  k8s::WallTime last{};
  for (const PodState* pod : replica.pods) {
    if (!pod->running_since) return;
    last = std::max(last, *pod->running_since);
  }
  const k8s::WallTime deadline = last + in_.spec.failure.start;
  if (now_ < deadline) return wake(deadline);
  replica.loss = Exit{name_of(Reason::StartTimeout),
                      "not ready " + std::to_string(in_.spec.failure.start.count()) +
                          " s after its last pod began to run (failure.startSeconds)",
                      {},
                      {},
                      {}};
}

}  // namespace pm::op
