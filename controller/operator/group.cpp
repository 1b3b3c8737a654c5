#include "controller/operator/group.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <set>

#include "controller/operator/requests.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

using std::chrono::seconds;
constexpr int survivors_grace = 5;

/// One group while it is judged.
struct Group {
  GroupRecord record;
  bool known = false;                   ///< was in the status
  std::vector<const PodState*> now, before;   ///< pods of the present incarnation, and of others
  int nodes = 1;                        ///< pods of a whole incarnation
  std::optional<Exit> loss;

  bool whole() const { return static_cast<int>(now.size()) >= nodes; }
};

class Governor {
 public:
  explicit Governor(const GroupsView& view) : in_(view), now_(view.snapshot.now) { out_.pods = view.pods; }

  Groups run() {
    gather();
    for (auto& [index, group] : groups_) judge(group);
    for (auto& [index, group] : groups_) restart(group);
    roll();
    for (auto& [index, group] : groups_) describe(group);
    for (auto& [index, group] : groups_) act(group);
    finish();
    return std::move(out_);
  }

 private:
  bool wanted_index(int index) const { return index < in_.spec.replicas; }
  bool current(const Group& group) const { return in_.wanted && group.record.pod_hash == in_.wanted->hash; }
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
      (pod.incarnation == group.record.incarnation ? group.now : group.before).push_back(&pod);
    }
    for (auto& [index, group] : groups_) {
      if (current(group)) group.nodes = in_.wanted->inputs.layout.nodes();
      else if (!group.now.empty()) group.nodes = group.now.front()->nodes;
      else group.nodes = static_cast<int>(std::max<size_t>(1, group.record.nodes.size()));
    }
  }

  /// A status that was lost or is older than the pods must not lead to a second incarnation beside a living one.
  void adopt(int index, const PodState& newest) {
    Group& group = groups_[index];
    if (group.known && group.record.incarnation >= newest.incarnation) return;
    group.record.index = index;
    group.record.incarnation = std::max<int64_t>(1, newest.incarnation);
    group.record.pod_hash = newest.hash;
    group.record.created = true;
    group.record.load_seconds.reset();
    group.record.ranks.clear();
  }

  void judge(Group& group) {
    GroupRecord& record = group.record;
    if (group.whole()) record.created = true;
    record.ready = group.whole() && std::all_of(group.now.begin(), group.now.end(), [](const PodState* pod) { return pod->ready; });
    if (!wanted_index(record.index)) return;
    note_nodes(group);
    note_ranks(group);
    if (record.ready && !record.load_seconds) record.load_seconds = load_time(group);
    if (record.reason == BudgetExhausted && !record.ready) return;
    group.loss = loss_of(group);
    if (!group.loss && !record.ready) watch_start(group);
    const auto progress = progress_of(group);
    record.loaded = !group.loss && (record.ready || (record.load_seconds && group.whole()) || (progress && progress->all_ready()));
  }

  void note_nodes(Group& group) {
    if (group.now.empty()) return;
    group.record.nodes.resize(static_cast<size_t>(group.nodes));
    for (const PodState* pod : group.now) {   // a pod that vanished leaves the name of its node
      if (pod->node_rank < group.nodes) group.record.nodes[static_cast<size_t>(pod->node_rank)] = pod->node;
    }
  }

  /// Bytes of every rank: predicted from the start, measured once when the worker says so.
  void note_ranks(Group& group) {
    GroupRecord& record = group.record;
    if (!current(group) || group.now.empty() || in_.spec.replicas * ranks_of(plan()) > 512) return;
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

  const Plan& plan() const { return in_.wanted->inputs.stored.plan; }

  std::optional<Progress> progress_of(const Group& group) const {
    for (const PodState* pod : group.now) {
      const auto probe = pod->node_rank == 0 ? in_.snapshot.probes.find(pod->name) : in_.snapshot.probes.end();
      if (probe != in_.snapshot.probes.end() && in_.wanted) return op::progress_of(probe->second, group.record.incarnation, ranks_of(plan()));
    }
    return std::nullopt;
  }

  double load_time(const Group& group) const {
    k8s::WallTime begin{}, end{};
    for (const PodState* pod : group.now) {
      begin = std::max(begin, pod->running_since.value_or(now_));
      end = std::max(end, pod->ready_since.value_or(now_));
    }
    return std::max(0.0, std::round(std::chrono::duration<double>(end - begin).count() * 10) / 10);
  }

  /// The first cause: an end with a reason of its own before ends that follow from it, a lost pod only if nothing ended.
  std::optional<Exit> loss_of(const Group& group) const {
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
  void watch_start(Group& group) {
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

  void next_incarnation(Group& group, const std::string& reason) {
    GroupRecord& record = group.record;
    record.incarnation += 1;
    record.created = record.ready = false;
    record.load_seconds.reset();
    record.nodes.clear();
    record.ranks.clear();
    record.reason = reason;
    record.pod_hash = in_.wanted->hash;
    group.before.insert(group.before.end(), group.now.begin(), group.now.end());
    group.now.clear();
    group.nodes = in_.wanted->inputs.layout.nodes();
  }

  void restart(Group& group) {
    if (!group.loss) return;
    GroupRecord& record = group.record;
    record.ready = false;
    if (record.reason != group.loss->reason || in_.wanted) {
      out_.failure = {record.index, record.incarnation, *group.loss, group.loss->at.value_or(now_)};
    }
    record.reason = group.loss->reason;
    record.message = group.loss->message;
    if (!current(group)) return;   // replaced by roll(), or kept as it is until there is a plan
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

  void roll() {
    if (!in_.wanted) return;
    int down = 0;
    bool old_left = false;
    for (const auto& [index, group] : groups_) {
      if (!wanted_index(index)) continue;
      down += group.record.ready ? 0 : 1;
      old_left |= !current(group);
      out_.exhausted |= current(group) && group.record.reason == BudgetExhausted;
    }
    out_.rollout_blocked = out_.exhausted && old_left;
    for (auto& [index, group] : groups_) {
      if (!wanted_index(index) || current(group)) continue;
      const bool serves = group.record.ready;
      if (serves && (out_.rollout_blocked || down >= in_.spec.max_unavailable)) continue;
      if (serves) ++down;
      group.record.restart_times.clear();
      next_incarnation(group, "Updating");
    }
  }

  /// Reason and message of what does not serve.
  void describe(Group& group) {
    GroupRecord& record = group.record;
    if (!wanted_index(record.index)) {
      record.reason = "ScalingDown";
    } else if (record.ready) {
      record.reason = "Serving";
      record.message.clear();
    } else if (record.reason == BudgetExhausted) {
      record.message = std::to_string(record.restart_times.size()) + " restarts within " + std::to_string(in_.spec.failure.window.count()) +
                       " s did not help; change the spec or the annotation " + annotation::restarted_at + " to try again";
    } else if (!record.created && group.now.empty()) {
      describe_gap(group);
    } else if (!group.loss) {
      describe_start(group);
    }
  }

  void describe_gap(Group& group) {
    GroupRecord& record = group.record;
    const k8s::WallTime until = backoff_until(record, in_.spec.failure);
    if (now_ < until) {
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

  void describe_start(Group& group) {
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

  void act(Group& group) {
    const GroupRecord& record = group.record;
    if (!wanted_index(record.index)) {
      for (const auto* pods : {&group.now, &group.before}) {
        for (const PodState* pod : *pods) {
          if (!pod->deleting) out_.actions.push_back(remove(k8s::Pods, *pod->object));
        }
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
    if (!current(group) || record.created || now_ < backoff_until(record, in_.spec.failure)) return;
    if (std::any_of(group.before.begin(), group.before.end(), [](const PodState* pod) { return pod->live(); })) return;
    for (int node = 0; node < group.nodes; ++node) {
      const auto here = [&](const PodState* pod) { return pod->node_rank == node; };
      if (std::any_of(group.now.begin(), group.now.end(), here)) continue;
      out_.actions.push_back(create(group_pod(in_.wanted->inputs, record.index, node, record.incarnation, in_.wanted->hash)));
    }
  }

  void finish() {
    for (auto& [index, group] : groups_) {
      const bool forget = !wanted_index(index) && group.now.empty() && group.before.empty();
      if (!forget) out_.records.push_back(std::move(group.record));
    }
    const auto matters = [](const GroupRecord& a, const GroupRecord& b) {
      return a.index == b.index && a.incarnation == b.incarnation && a.pod_hash == b.pod_hash && a.restarts == b.restarts &&
             a.restart_times == b.restart_times && (a.reason == BudgetExhausted) == (b.reason == BudgetExhausted);
    };
    out_.commit = out_.records.size() != in_.records.size() || !std::equal(out_.records.begin(), out_.records.end(), in_.records.begin(), matters);
  }

  const GroupsView& in_;
  const k8s::WallTime now_;
  std::map<int, Group> groups_;
  Groups out_;
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
  for (const PodState& pod : worker_pods(snapshot)) {
    if (pod.node_rank != 0 || !pod.running_since || pod.exit || pod.deleting || k8s::string_at(*pod.object, "/status/podIP").empty()) continue;
    const auto own = std::find_if(records.begin(), records.end(), [&](const GroupRecord& record) { return record.index == pod.group; });
    if (own == records.end() || own->incarnation != pod.incarnation) continue;
    const bool unknown = own->ranks.empty() || std::any_of(own->ranks.begin(), own->ranks.end(), [](const RankRecord& rank) { return !rank.measured; });
    const bool fresh = !pod.ready_since || *pod.ready_since + seconds(60) > snapshot.now;   // a worker that never says is not asked for ever
    if ((!pod.ready && !own->load_seconds) || (pod.ready && unknown && fresh)) out.push_back(pod.object);
  }
  return out;
}

}  // namespace pm::op
