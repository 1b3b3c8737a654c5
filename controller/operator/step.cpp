#include "controller/operator/step.h"

#include <algorithm>
#include <stdexcept>

#include "controller/core/status_error.h"
#include "controller/operator/json_patch.h"
#include "controller/operator/requests.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

using k8s::Failure;
using k8s::Request;
using k8s::Verb;
using std::chrono::seconds;

/// A pass makes a few requests per group; more means that it chases its own tail, and then a fresh snapshot is better.
constexpr int most_requests = 2000;
constexpr seconds conflict_again{30}, refused_again{30}, policy_again{10}, volume_patience{20}, volume_again{30}, probe_again{2}, monitor_again{300};

/// The children of a kind in a (const or mutable) snapshot.
template <class View>
auto* objects_of(View& view, const k8s::Resource& resource) {
  if (resource == k8s::Pods) return &view.pods;
  if (resource == k8s::ConfigMaps) return &view.config_maps;
  if (resource == k8s::Services) return &view.services;
  if (resource == k8s::PodDisruptionBudgets) return &view.budgets;
  return static_cast<decltype(&view.pods)>(nullptr);
}

void put(Snapshot& view, const k8s::Resource& resource, Json object) {
  auto* objects = objects_of(view, resource);
  if (!objects) return;
  const k8s::Key key = k8s::key_of(object);
  std::erase_if(*objects, [&](const auto& present) { return k8s::key_of(*present) == key; });
  objects->push_back(std::make_shared<const Json>(std::move(object)));
}

std::string id_of(const Json& object) { return k8s::string_at(object, "/kind") + "/" + k8s::key_of(object).name; }

/// Takes an answer into the view. Returns how the pass ends when it must.
class Absorber {
 public:
  Absorber(State& state) : state_(state), view_(*state.view), sent_(*state.sent) {}

  std::optional<Done> absorb(const k8s::Response& response) {
    if (sent_.verb == Verb::Get && state_.asks_policy) return policy(response);
    if (sent_.verb == Verb::Get && state_.asks_claim) return claim(response);
    if (sent_.resource == k8s::Nodes) return node(response);
    if (k8s::failed(response)) return failure(k8s::error_of(response));
    const Json& object = k8s::object_of(response);
    if (sent_.verb == Verb::Get && sent_.resource != k8s::PersistentVolumeClaims) return found(object);
    if (sent_.resource == k8s::PersistentVolumeClaims) state_.notes.claim = claim_of(response);
    else if (sent_.verb == Verb::Create) created(object);
    else if (sent_.verb == Verb::List) note_events(object);
    else if (sent_.verb == Verb::MergePatch || sent_.verb == Verb::Apply) patched(object);
    else if (sent_.verb == Verb::Delete) deleted();
    return std::nullopt;
  }

  /// A question that the answer raised, to be asked at once.
  std::optional<Request> follow_up;

 private:
  /// The user's ConfigMap. That it is not there, or not for us, is an answer too; anything else is asked again.
  std::optional<Done> policy(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden) return failure(*error);
    state_.asks_policy = false;
    state_.notes.policy = policy_of(owner_of(*view_.model), *spec_of(*view_.model).policy_ref, response);
    return std::nullopt;
  }

  std::optional<Done> claim(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden) return failure(*error);
    state_.asks_claim = false;
    state_.notes.claim = claim_of(response);
    return std::nullopt;
  }

  /// A node as it is now. May we not read it, then what the watch told stands.
  std::optional<Done> node(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden) return failure(*error);
    state_.notes.nodes_read.insert(sent_.name);
    if (!view_.nodes || (error && error->failure == Failure::Forbidden)) return std::nullopt;
    std::erase_if(*view_.nodes, [&](const auto& node) { return k8s::key_of(*node).name == sent_.name; });
    if (!error) view_.nodes->push_back(std::make_shared<const Json>(k8s::object_of(response)));
    return std::nullopt;
  }

  void created(const Json& object) {
    if (sent_.resource == PodMonitors) state_.notes.live[id_of(object)] = object;
    put(view_, sent_.resource, object);
  }

  /// Without the Prometheus operator its path is not served; then nothing is called by the name that was asked for.
  std::optional<Done> no_monitor(const k8s::ApiError& error) {
    state_.notes.monitor_read = true;
    const bool absent = error.failure == Failure::NotFound, object = error.message.find("\"" + sent_.name + "\" not found") != std::string::npos;
    if (absent && object) {
      forget();
    } else {
      state_.notes.no_monitor = absent ? "the cluster has no PodMonitor: the Prometheus operator is not installed"
                                : error.failure == Failure::Forbidden ? "the controller has no right to PodMonitors: install the chart with podMonitors.enabled=true"
                                                                      : clip(k8s::to_string(error), 300);
    }
    return std::nullopt;
  }

  std::optional<Done> failure(const k8s::ApiError& error) {
    if (sent_.verb == Verb::Create && error.failure == Failure::AlreadyExists) {
      follow_up = get(sent_);
      return std::nullopt;
    }
    if (sent_.resource == PodMonitors && !k8s::transient(error) && error.failure != Failure::Conflict) return no_monitor(error);
    const bool looks = sent_.verb == Verb::Get && objects_of(view_, sent_.resource);
    if ((sent_.verb == Verb::Delete || looks) && error.failure == Failure::NotFound) {
      forget();
      return std::nullopt;
    }
    if (sent_.verb == Verb::MergePatch && sent_.resource == ParallelModels) {
      if (error.failure == Failure::NotFound) {   // deleted meanwhile
        state_.memo->gone = k8s::uid_of(*view_.model);
        return Done{};
      }
      if (error.failure == Failure::Invalid && state_.notes.lean < 2) {
        ++state_.notes.lean;
        return std::nullopt;
      }
    }
    if (sent_.verb == Verb::List) {   // Events are a courtesy
      state_.notes.pod_events[pod_of_events()] = {};
      return std::nullopt;
    }
    const bool refused = error.failure == Failure::Forbidden || error.failure == Failure::Invalid;
    if (sent_.verb == Verb::Create && sent_.resource == k8s::Pods && refused) {
      const bool quota = error.message.find("exceeded quota") != std::string::npos;
      state_.notes.refused = Wait{quota ? "QuotaExceeded" : "Unschedulable", "the API server refuses pod " + sent_.name + ": " + clip(error.message, 700)};
      return std::nullopt;
    }
    return Done{.error = sent_.resource.kind + " " + sent_.name + ": " + k8s::to_string(error)};
  }

  /// The object whose name was taken: ours after all (a stale snapshot, or an answer that was lost), a dead namesake's, or foreign.
  std::optional<Done> found(const Json& object) {
    const auto controller = k8s::controller_of(object);
    if (controller && controller->uid == k8s::uid_of(*view_.model)) {
      state_.notes.live[id_of(object)] = object;
      if (sent_.resource == PodMonitors) state_.notes.monitor_read = true;
      put(view_, sent_.resource, object);
      return std::nullopt;
    }
    if (controller && controller->kind == ParallelModels.kind && controller->name == k8s::key_of(*view_.model).name) {
      return Done{.error = sent_.resource.kind + " " + sent_.name + " of a deleted ParallelModel of this name is not collected yet"};
    }
    state_.notes.conflict = sent_.resource.kind + " " + sent_.name + " exists and is not ours" +
                            (controller ? " but of " + controller->kind + " " + controller->name : "") + "; delete it, or give the ParallelModel another name";
    return std::nullopt;
  }

  void patched(const Json& object) {
    if (sent_.resource != ParallelModels) {
      state_.notes.live[id_of(object)] = object;
      if (sent_.verb == Verb::Apply) state_.notes.mended.insert(id_of(object));
      return put(view_, sent_.resource, object);
    }
    const auto told = events_of(at(*view_.model, "/status"), at(object, "/status"));
    state_.events.insert(state_.events.end(), told.begin(), told.end());
    view_.model = std::make_shared<const Json>(object);
  }

  /// A pod lives on until its kubelet confirms; other objects are gone.
  void deleted() {
    if (sent_.resource != k8s::Pods) return forget();
    for (auto& pod : view_.pods) {
      if (k8s::key_of(*pod).name != sent_.name) continue;
      Json marked = *pod;
      marked["metadata"]["deletionTimestamp"] = k8s::format_time(view_.now);
      pod = std::make_shared<const Json>(std::move(marked));
    }
  }

  void forget() {
    state_.notes.live.erase(sent_.resource.kind + "/" + sent_.name);
    if (auto* objects = objects_of(view_, sent_.resource)) {
      std::erase_if(*objects, [&](const auto& object) { return k8s::key_of(*object).name == sent_.name; });
    }
  }

  std::string pod_of_events() const {
    const std::string& selector = sent_.query.at("fieldSelector");
    return selector.substr(selector.rfind('=') + 1);
  }

  void note_events(const Json& list) {
    Wait& wait = state_.notes.pod_events[pod_of_events()];
    const Json& items = at(list, "/items");
    if (!items.is_array()) return;
    for (const Json& event : items) {
      const std::string reason = k8s::string_at(event, "/reason");
      const std::string note = clip(k8s::string_at(event, "/note"), 700);
      if (note.empty()) continue;
      if (reason == "FailedMount" || reason == "FailedAttachVolume") wait = {"VolumeNotMounted", note};
      else if (reason == "FailedCreatePodSandBox" && wait.reason.empty()) wait = {"Starting", "the kubelet cannot make its sandbox: " + note};
    }
  }

  State& state_;
  Snapshot& view_;
  const Request& sent_;
};

/// Decides what a pass does next, from the view alone.
class Pass {
 public:
  Pass(State& state, const Settings& settings) : state_(state), view_(*state.view), settings_(settings), owner_(owner_of(*view_.model)) {}

  std::optional<Request> next() {
    try {
      read_ = state_.memo->spec(*view_.model);
      spec_ = *read_;
    } catch (const std::exception& error) {
      return keep_what_runs(error.what());
    }
    if (spec_.policy_ref && !state_.notes.policy) {
      state_.asks_policy = true;
      return get_policy(owner_, *spec_.policy_ref);
    }
    planning_ = planning_of(owner_, read_, view_, settings_, state_.notes.policy, state_.notes.claim, *state_.memo);
    if (planning_.asks_claim) {
      state_.asks_claim = true;
      return get_claim(owner_, spec_);
    }
    if (planning_.action && !state_.notes.conflict && !state_.notes.refused) return planning_.action;
    if (planning_.plan) {
      pods_ = state_.memo->pods(read_, owner_, planning_.plan, settings_);
      wanted_.emplace(Wanted{{owner_, spec_, *planning_.plan, pods_->layout, settings_}, pods_->hash});
      if (auto request = child()) return request;
    }
    auto pods = worker_pods(view_);
    refine_waits(pods, spec_, view_, state_.notes, wanted_ ? pods_->layout.ranks.front() : spec_.devices.count);
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
    if (spec_.policy_ref) wake(view_.now + policy_again);   // its ConfigMap is not watched: that would be a watch of everybody's
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
    spec_ = Spec{};
    for (const GroupRecord& record : group_records(*view_.model)) spec_.replicas = std::max(spec_.replicas, record.index + 1);
    return groups(worker_pods(view_));
  }

  void wake(k8s::WallTime when) { wake_ = wake_ ? std::min(*wake_, when) : when; }

  /// Services and the disruption budget: made when missing, mended when our fields differ.
  std::optional<Request> child() {
    if (state_.notes.conflict) return std::nullopt;
    for (const Json& wanted : {ranks_service(owner_), http_service(owner_, spec_), disruption_budget(owner_, spec_, pods_->layout.nodes())}) {
      const auto& present = *objects_of(view_, resource_of(wanted));
      const auto same = std::find_if(present.begin(), present.end(), [&](const auto& object) { return k8s::key_of(*object) == k8s::key_of(wanted); });
      if (same == present.end()) return create(wanted);
      if (good(wanted, **same) || k8s::being_deleted(**same)) continue;
      const auto live = state_.notes.live.find(id_of(wanted));
      if (live == state_.notes.live.end()) return get(wanted);   // a store may be behind, and keeps no managedFields
      if (auto request = mended(wanted, live->second)) return request;
    }
    return std::nullopt;
  }

  /// A pod whose containers are not made for long waits for a volume, and only its Events say which. One pod speaks for all: they mount the same, and an API server walks
  /// over every Event of the namespace to find those of a pod.
  std::optional<Request> ask_for_events(const std::vector<PodState>& pods) {
    const bool asked = std::any_of(pods.begin(), pods.end(), [&](const PodState& pod) { return state_.notes.pod_events.contains(pod.name); });
    for (const PodState& pod : pods) {
      if (!pod.creating_since || pod.deleting) continue;
      const bool patient = *pod.creating_since + volume_patience > view_.now;
      wake(patient ? *pod.creating_since + volume_patience : view_.now + volume_again);
      if (!patient && !asked) return events_of_pod({owner_.key.ns, pod.name});
    }
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
    refine_waits(pods, spec_, view_, state_.notes, 0);
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
    if (spec_.pod_monitor && !state_.notes.no_monitor.empty()) planning_.note += (planning_.note.empty() ? "" : "; ") + ("no PodMonitor (metrics.podMonitor): " + state_.notes.no_monitor);
    const GroupsView view{spec_, view_, group_records(*view_.model), std::move(pods), planning_.fetch ? std::nullopt : wanted_};
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

  Json status() const { return status_of({owner_, spec_, view_, planning_, groups_, wanted_, state_.notes}); }

  /// The PodMonitor is not watched, for its kind may not be there: it is looked at once in a pass, from when status says that there may be one until it is gone.
  std::optional<Request> monitor(const Json& status) {
    if (!bool_at(status, "/podMonitor") || !state_.notes.no_monitor.empty() || state_.notes.conflict || state_.notes.unreadable) return std::nullopt;
    if (!bool_at(*view_.model, "/status/podMonitor")) return write(status);
    const Json wanted = pod_monitor(owner_);
    if (!state_.notes.monitor_read) return get(wanted);
    const auto live = state_.notes.live.find(id_of(wanted));
    if (live == state_.notes.live.end()) return create(wanted);
    return spec_.pod_monitor ? mended(wanted, live->second) : remove(PodMonitors, live->second);
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

  State& state_;
  const Snapshot& view_;
  const Settings& settings_;
  const Owner owner_;
  std::shared_ptr<const Spec> read_;
  Spec spec_;
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
    Absorber absorber(state);
    if (auto end = absorber.absorb(*response)) {
      end->events = std::move(state.events);
      return *end;
    }
    next = std::move(absorber.follow_up);
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
