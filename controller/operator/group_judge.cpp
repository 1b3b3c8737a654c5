#include "controller/operator/group_judge.h"

#include <algorithm>
#include <chrono>
#include <cmath>

namespace pm::op {

namespace {

bool all_ready(const std::vector<const PodState*>& pods) {
  return std::all_of(pods.begin(), pods.end(), [](const PodState* pod) { return pod->ready; });
}

/// Its pods are all there, and none of them is about to go.
bool stands(const std::vector<const PodState*>& pods) {
  if (pods.empty() || static_cast<int>(pods.size()) < pods.front()->nodes) return false;
  return std::none_of(pods.begin(), pods.end(), [](const PodState* pod) { return pod->exit || pod->deleting; });
}

}  // namespace

bool Group::serves() const { return whole() && all_ready(now); }

bool Group::former_serves() const { return record.former && stands(former) && all_ready(former); }

int Group::bound() const {
  return static_cast<int>(std::count_if(now.begin(), now.end(), [](const PodState* pod) { return pod->bound(); }));
}

bool Group::given_up(const FailurePolicy& policy) const {
  return record.reason == BudgetExhausted && static_cast<int>(record.restart_times.size()) >= policy.max_restarts;
}

void Judge::judge(Group& group) const {
  GroupRecord& record = group.record;
  if (group.whole()) record.created = true;
  end_surge(group);
  record.ready = group.serves() || group.former_serves();
  if (!wanted_index(record.index)) return;
  note_nodes(group);
  note_ranks(group);
  if (group.bound() >= group.nodes) record.waits = 0, record.wait_until.reset();
  if (group.serves() && !record.load_seconds) record.load_seconds = load_time(group);
  record.loaded = record.ready;
  if (group.given_up(in_.spec.failure) && !group.serves()) return;
  group.loss = loss_of(group);
  if (!group.loss && !group.serves()) watch_start(group);
  const auto progress = progress_of(group);
  record.loaded |= !group.loss && ((record.load_seconds && group.whole()) || (progress && progress->all_ready()));
}

/// The former incarnation has done its part once the present one serves, and is no use any more when it is lost itself.
void Judge::end_surge(Group& group) const {
  GroupRecord& record = group.record;
  if (!record.former || (!group.serves() && stands(group.former))) return;
  record.former = 0;
  record.surge_since.reset();
  group.before.insert(group.before.end(), group.former.begin(), group.former.end());
  group.former.clear();
}

std::optional<k8s::WallTime> Judge::surge_end(const GroupRecord& record) const {
  if (!record.former || !record.surge_since) return std::nullopt;
  const k8s::WallTime begin = std::max({*record.surge_since, backoff_until(record, in_.spec.failure), record.wait_until.value_or(k8s::WallTime{})});
  return begin + in_.spec.update.surge_timeout;
}

void Judge::note_nodes(Group& group) const {
  if (group.now.empty()) return;
  group.record.nodes.resize(static_cast<size_t>(group.nodes));
  for (const PodState* pod : group.now) {   // a pod that vanished leaves the name of its node
    if (pod->node_rank < group.nodes) group.record.nodes[static_cast<size_t>(pod->node_rank)] = pod->node;
  }
}

/// Bytes of every rank: predicted from the start, measured once when the worker says so.
void Judge::note_ranks(Group& group) const {
  GroupRecord& record = group.record;
  if (!group.current || group.now.empty() || in_.spec.replicas * ranks_of(plan()) > 512) return;
  if (record.ranks.size() != plan().ranks.size()) {
    record.ranks.clear();
    for (const RankPlan& rank : plan().ranks) record.ranks.push_back({rank.rank, "", plan().device_memory, rank.predicted, std::nullopt});
  }
  const auto progress = progress_of(group);
  for (RankRecord& rank : record.ranks) {
    const size_t node = static_cast<size_t>(in_.wanted->inputs.layout.node_of(rank.rank));
    if (node < record.nodes.size()) rank.node = record.nodes[node];
    if (rank.measured || !progress) continue;
    const auto found = progress->ranks.find(rank.rank);
    if (found != progress->ranks.end()) rank.measured = found->second.measured;
  }
}

std::optional<Progress> Judge::progress_of(const Group& group) const {
  for (const PodState* pod : group.now) {
    const auto probe = pod->node_rank == 0 ? in_.snapshot.probes.find(pod->name) : in_.snapshot.probes.end();
    if (probe != in_.snapshot.probes.end() && in_.wanted) return op::progress_of(probe->second, group.record.incarnation, ranks_of(plan()));
  }
  return std::nullopt;
}

double Judge::load_time(const Group& group) const {
  k8s::WallTime begin{}, end{};
  for (const PodState* pod : group.now) {
    begin = std::max(begin, pod->running_since.value_or(now_));
    end = std::max(end, pod->ready_since.value_or(now_));
  }
  return std::max(0.0, std::round(std::chrono::duration<double>(end - begin).count() * 10) / 10);
}

/// The first cause: an end with a reason of its own before ends that follow from it, a lost pod only if nothing ended.
std::optional<Exit> Judge::loss_of(const Group& group) const {
  const PodState* first = nullptr;
  const auto consequence = [](const Exit& exit) { return exit.reason == "CommunicatorAborted" || exit.code == 0; };
  for (const PodState* pod : group.now) {
    if (!pod->exit) continue;
    if (!first || (consequence(*first->exit) && !consequence(*pod->exit))) first = pod;
  }
  if (first) return first->exit;
  for (const PodState* pod : group.now) {
    if (!pod->deleting) continue;
    if (!node_ready(in_.snapshot, pod->node) && pod->bound()) return Exit{"NodeLost", "node " + pod->node + " of pod " + pod->name + " is gone or not ready", {}, {}, {}};
    return Exit{"RankLost", "pod " + pod->name + " is being deleted", {}, {}, {}};
  }
  if (!group.record.created || group.whole()) return std::nullopt;
  for (int node = 0; node < group.nodes; ++node) {
    const auto here = [&](const PodState* pod) { return pod->node_rank == node; };
    if (std::any_of(group.now.begin(), group.now.end(), here)) continue;
    const std::string where = node < static_cast<int>(group.record.nodes.size()) ? group.record.nodes[static_cast<size_t>(node)] : "";
    const bool lost_node = !where.empty() && !node_ready(in_.snapshot, where);
    return Exit{lost_node ? "NodeLost" : "RankLost", "pod " + std::to_string(node) + " of the group vanished" + (where.empty() ? "" : " from node " + where), {}, {}, {}};
  }
  return std::nullopt;
}

/// startSeconds counts from the moment when the last pod runs; the controller alone enforces it.
void Judge::watch_start(Group& group) const {
  if (!group.whole() || group.record.load_seconds) return;
  k8s::WallTime last{};
  for (const PodState* pod : group.now) {
    if (!pod->running_since) return;
    last = std::max(last, *pod->running_since);
  }
  const k8s::WallTime deadline = last + in_.spec.failure.start;
  if (now_ < deadline) return wake(deadline);
  group.loss = Exit{"StartTimeout", "not ready " + std::to_string(in_.spec.failure.start.count()) + " s after its last pod began to run (failure.startSeconds)", {}, {}, {}};
}

}  // namespace pm::op
