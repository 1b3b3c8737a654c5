#include "controller/operator/step.h"

#include <algorithm>
#include <stdexcept>

#include "controller/operator/absorber.h"
#include "controller/operator/json_patch.h"
#include "controller/operator/requests.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

using k8s::Request;
using k8s::Verb;
using std::chrono::seconds;

/// A pass makes a few requests per group; more means that it chases its own tail, and then a fresh snapshot is better.
constexpr int most_requests = 2000;
constexpr seconds conflict_again{30}, refused_again{30}, policy_again{10}, volume_patience{20}, volume_again{30}, volume_crowded{10}, probe_again{2}, monitor_again{300};

/// Decides what a pass does next, from the view alone.
class Pass {
 public:
  Pass(State& state, const Settings& settings) : state_(state), view_(*state.view), settings_(settings), owner_(owner_of(*view_.model)) {}

  std::optional<Request> next() {
    try {
      read_ = state_.memo->spec(view_.model);
    } catch (const std::exception& error) {
      return keep_what_runs(error.what());
    }
    if (spec().policy_ref && !state_.notes.policy) {
      state_.asks_policy = true;
      return get_policy(owner_, *spec().policy_ref);
    }
    planning_ = planning_of(owner_, read_, view_, settings_, state_.notes.policy, state_.notes.claim, *state_.memo);
    if (planning_.asks_claim) {
      state_.asks_claim = true;
      return get_claim(owner_, spec());
    }
    if (planning_.action && !state_.notes.conflict && !state_.notes.refused) return planning_.action;
    if (planning_.plan) {
      pods_ = state_.memo->pods(read_, owner_, planning_.plan, settings_);
      wanted_.emplace(Wanted{{owner_, spec(), *planning_.plan, pods_->layout, settings_}, pods_->hash});
      if (auto request = child()) return request;
    }
    auto pods = worker_pods(view_);
    refine_waits(pods, spec(), view_, state_.memo->heard, wanted_ ? pods_->layout.ranks.front() : spec().devices.count);
    if (auto request = ask_for_events(pods)) return request;
    if (auto request = look_at_inspection()) return request;
    return groups(std::move(pods));
  }

  /// When to look again although nothing may change.
  std::optional<std::chrono::milliseconds> requeue() {
    if (state_.notes.conflict) wake(view_.now + conflict_again);
    if (state_.notes.refused) wake(view_.now + refused_again);
    if (!state_.notes.no_monitor.empty()) wake(view_.now + monitor_again);
    if (planning_.wake) wake(*planning_.wake);
    if (spec().policy_ref) wake(view_.now + policy_again);   // its ConfigMap is not watched: that would be a watch of everybody's
    if (groups_.wake) wake(*groups_.wake);
    if (!pods_to_probe(view_).empty()) wake(view_.now + probe_again);
    if (!wake_) return std::nullopt;
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(*wake_ - view_.now), std::chrono::milliseconds(100));
  }

 private:
  /// A spec that no schema should have let through: its groups are judged and told of, and nothing is made or replaced.
  std::optional<Request> keep_what_runs(const char* why) {
    planning_.reason = "InvalidSizes";
    planning_.message = clip(why, 1000);
    state_.notes.unreadable = true;
    Spec none;
    for (const GroupRecord& record : group_records(*view_.model)) none.replicas = std::max(none.replicas, record.index + 1);
    read_ = std::make_shared<const Spec>(std::move(none));
    return groups(worker_pods(view_));
  }

  void wake(k8s::WallTime when) { wake_ = wake_ ? std::min(*wake_, when) : when; }

  /// Services and the disruption budget: made when missing, mended when our fields differ, removed when not wanted any more.
  std::optional<Request> child() {
    if (state_.notes.conflict) return std::nullopt;
    const auto children = state_.memo->children(read_, owner_, pods_->layout.nodes());
    for (const Json& wanted : *children) {
      const auto& present = *objects_of(view_, resource_of(wanted));
      const auto same = std::find_if(present.begin(), present.end(), [&](const auto& object) { return k8s::key_of(*object) == k8s::key_of(wanted); });
      if (same == present.end()) return create(wanted);
      if (good(wanted, **same) || k8s::being_deleted(**same)) continue;
      const auto live = state_.notes.live.find(id_of(wanted));
      if (live == state_.notes.live.end()) return get(wanted);   // a store may be behind, and keeps no managedFields
      if (auto request = mended(wanted, live->second)) return request;
    }
    return needless(*children);
  }

  /// A budget that would protect nothing, and the Service of the ranks once the last group over several nodes is gone: Kubernetes' own controllers look at each of them
  /// whenever a pod changes.
  std::optional<Request> needless(const std::vector<Json>& wanted) const {
    const auto removal = [&](const k8s::Resource& resource, const std::string& name) -> std::optional<Request> {
      if (std::any_of(wanted.begin(), wanted.end(), [&](const Json& child) { return id_of(child) == resource.kind + "/" + name; })) return std::nullopt;
      for (const auto& present : *objects_of(view_, resource)) {
        if (k8s::key_of(*present).name == name && !k8s::being_deleted(*present)) return remove(resource, *present);
      }
      return std::nullopt;
    };
    if (!spans_nodes()) {
      if (auto request = removal(k8s::Services, ranks_service_name(owner_.key.name))) return request;
    }
    return removal(k8s::PodDisruptionBudgets, owner_.key.name);
  }

  /// Whether ranks of a group may still look for each other by the names of their pods.
  bool spans_nodes() const {
    return std::any_of(view_.pods.begin(), view_.pods.end(), [](const auto& pod) {
      return k8s::label_of(*pod, label::role) == "worker" && number_of(annotation_of(*pod, annotation::nodes)).value_or(1) > 1;
    });
  }

  /// A pod whose containers are not made for long waits for a volume, and only its Events say which. One pod speaks for all: they mount the same, and an API server walks
  /// over every Event of the namespace to find those of a pod.
  std::optional<Request> ask_for_events(const std::vector<PodState>& pods) {
    const PodState* next = nullptr;
    k8s::WallTime last{}, longest_ago{};
    for (const PodState& pod : pods) {
      if (!pod.creating_since || pod.deleting) continue;
      if (const k8s::WallTime end = *pod.creating_since + volume_patience; view_.now < end) {
        wake(end);
        continue;
      }
      const auto known = state_.memo->heard.find(k8s::uid_of(*pod.object));
      const k8s::WallTime when = known == state_.memo->heard.end() ? k8s::WallTime{} : known->second.when;
      last = std::max(last, when);
      if (!next || when < longest_ago) next = &pod, longest_ago = when;
    }
    if (!next) return std::nullopt;
    const k8s::WallTime due = last + volume_again;
    if (due <= view_.now && view_.may_list_events) return events_of_pod({owner_.key.ns, next->name});
    wake(due <= view_.now ? view_.now + volume_crowded : due);
    return std::nullopt;
  }

  /// The inspect pod, or the fetch pod, is the first to meet a volume that cannot be mounted.
  std::optional<Request> look_at_inspection() {
    if (planning_.plan && !planning_.fetch) return std::nullopt;
    std::vector<PodState> pods;
    for (const auto& pod : view_.pods) {
      if (k8s::label_of(*pod, label::role) == (planning_.fetch ? "fetch" : "inspect")) pods.push_back(pod_state(pod, view_));
    }
    if (auto request = ask_for_events(pods)) return request;
    refine_waits(pods, spec(), view_, state_.memo->heard, 0);
    for (const PodState& pod : pods) {
      if (!pod.wait || pod.wait->reason != "VolumeNotMounted") continue;
      if (planning_.fetch) planning_.fetch = Wait{pod.wait->reason, "pod " + pod.name + " waits: " + pod.wait->message};
      if (!planning_.wait) continue;
      planning_.wait = pod.wait;
      planning_.message = "pod " + pod.name + " waits: " + pod.wait->message;
    }
    return std::nullopt;
  }

  std::optional<Request> groups(std::vector<PodState> pods) {
    if (spec().pod_monitor && !state_.notes.no_monitor.empty()) planning_.note += (planning_.note.empty() ? "" : "; ") + ("no PodMonitor (metrics.podMonitor): " + state_.notes.no_monitor);
    const GroupsView view{spec(), view_, group_records(*view_.model), std::move(pods), planning_.fetch ? std::nullopt : wanted_};
    groups_ = govern(view);
    if (groups_.commit) {
      if (auto request = write(status())) return request;
    }
    for (const Request& action : groups_.actions) {
      const bool makes = action.verb == Verb::Create;
      for (const std::string& node : groups_.dead_nodes) {
        if (makes && !state_.notes.nodes_read.contains(node)) return get_node(node);
      }
      if (!makes || (!state_.notes.conflict && !state_.notes.refused)) return action;
    }
    if (auto request = superseded(planning_, view_, state_.notes.policy)) return request;
    const Json status = this->status();
    if (auto request = monitor(status)) return request;
    return write(status);
  }

  Json status() const { return status_of({owner_, spec(), view_, planning_, groups_, wanted_, state_.notes}); }

  /// The PodMonitor is not watched, for its kind may not be there: it is looked at once in a pass, from when status says that there may be one until it is gone.
  std::optional<Request> monitor(const Json& status) {
    if (!bool_at(status, "/podMonitor") || !state_.notes.no_monitor.empty() || state_.notes.conflict || state_.notes.unreadable) return std::nullopt;
    if (!bool_at(*view_.model, "/status/podMonitor")) return write(status);
    const Json wanted = pod_monitor(owner_);
    if (!state_.notes.monitor_read) return get(wanted);
    const auto live = state_.notes.live.find(id_of(wanted));
    if (live == state_.notes.live.end()) return create(wanted);
    return spec().pod_monitor ? mended(wanted, live->second) : remove(PodMonitors, live->second);
  }

  /// Makes our fields of a live object what they should be; nothing when they are, or were made so in this pass.
  std::optional<Request> mended(const Json& wanted, const Json& live) const {
    if (good(wanted, live) || k8s::being_deleted(live) || state_.notes.mended.contains(id_of(wanted))) return std::nullopt;
    if (auto request = take_over(live)) return request;
    return mend(wanted, live);
  }

  static bool good(const Json& wanted, const Json& live) {
    return covers(at(live, "/spec"), wanted["spec"]) && covers(at(live, "/metadata/labels"), wanted["metadata"]["labels"]);
  }

  std::optional<Request> write(const Json& status) {
    Json patch = merge_patch(at(*view_.model, "/status"), status);
    if (patch.empty() || state_.written == status) return std::nullopt;   // an older schema may drop a field: once is enough
    state_.written = status;
    return patch_status(*view_.model, std::move(patch));
  }

  const Spec& spec() const { return *read_; }

  State& state_;
  const Snapshot& view_;
  const Settings& settings_;
  const Owner owner_;
  std::shared_ptr<const Spec> read_;
  Planning planning_;
  std::shared_ptr<const Memo::Pods> pods_;
  std::optional<Wanted> wanted_;
  Groups groups_;
  std::optional<k8s::WallTime> wake_;
};

}  // namespace

std::variant<Call, Done> step(State state, const Snapshot& snapshot, const std::optional<k8s::Response>& response, const Settings& settings) {
  if (!state.view) state.view = snapshot;
  if (!state.memo) state.memo = std::make_shared<Memo>();
  std::optional<Request> next;
  if (state.sent && response) {
    Absorbed taken = absorb(state, *response);
    if (taken.end) {
      taken.end->events = std::move(state.events);
      return std::move(*taken.end);
    }
    next = std::move(taken.follow_up);
  }
  state.sent.reset();
  if (!state.view->model || k8s::being_deleted(*state.view->model) || k8s::uid_of(*state.view->model) == state.memo->gone) return Done{.events = std::move(state.events)};   // deletion is garbage collection
  std::optional<std::chrono::milliseconds> requeue;
  if (!next) {
    Pass pass(state, settings);
    next = pass.next();
    if (!next) requeue = pass.requeue();
  }
  if (!next) return Done{.requeue_after = requeue, .events = std::move(state.events)};
  if (++state.requests > most_requests) return Done{.error = "too many requests in one pass", .events = std::move(state.events)};
  state.sent = next;
  return Call{std::move(state), std::move(*next)};
}

}  // namespace pm::op
