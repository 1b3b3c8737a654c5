// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/reconcile/reconcile_step.h"

#include <algorithm>
#include <set>
#include <stdexcept>

#include "controller/operator/api/json_patch.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/requests.h"
#include "controller/operator/children/optional_children.h"
#include "controller/operator/reconcile/apply_response.h"
#include "controller/operator/replicas/evacuation.h"

namespace pm::op {

namespace {

using k8s::Request;
using k8s::Verb;
using std::chrono::seconds;

/// A reconcile needs a few requests per replica. More of them mean a livelock, from which a fresh snapshot recovers.
constexpr int max_requests = 2000;
constexpr seconds conflict_again{30}, refused_again{30}, policy_again{10}, volume_patience{20}, volume_again{30},
    volume_crowded{10}, probe_again{2}, optional_again{300}, route_again{60};

/// Derives the next request of a reconcile from the view alone.
class ReconcileStep {
 public:
  ReconcileStep(ReconcileState& state, const Settings& settings)
      : state_(state), view_(*state.view), settings_(settings), owner_(parse_owner(*view_.model)) {}

  std::optional<Request> next() {
    try {
      spec_ = state_.cache->spec(view_.model);
    } catch (const std::exception& error) {
      return keep_running_replicas(error.what());
    }
    if (spec().policy_ref && !state_.notes.policy) {
      state_.asks_policy = true;
      return get_policy(owner_, *spec().policy_ref);
    }
    planning_ = plan_model(owner_, spec_, view_, settings_, state_.notes.policy, state_.notes.claim, complete_devices(),
                           *state_.cache);
    if (planning_.asks_claim) {
      state_.asks_claim = true;
      return get_claim(owner_, spec());
    }
    if (planning_.asks_devices) {
      state_.asks_devices = true;
      if (!state_.notes.devices) state_.notes.devices.emplace();
      return next_request(spec(), *state_.notes.devices);
    }
    if (planning_.action && !state_.notes.conflict && !state_.notes.refused) return planning_.action;
    if (planning_.plan) {
      pods_ = state_.cache->pods(spec_, owner_, planning_.plan, settings_);
      wanted_.emplace(Wanted{{owner_, spec(), *planning_.plan, pods_->layout, settings_}, pods_->hash});
      if (auto request = reconcile_children()) return request;
    }
    auto pods = worker_pods(view_);
    refine_waits(pods, spec(), view_, state_.cache->mount_events,
                 wanted_ ? pods_->layout.ranks.front() : spec().devices.count);
    if (auto request = request_pod_events(pods)) return request;
    if (auto request = check_job_volumes()) return request;
    return reconcile_replicas(std::move(pods));
  }

  /// Returns when to reconcile again although nothing may change.
  std::optional<std::chrono::milliseconds> requeue() {
    if (state_.notes.conflict) wake(view_.now + conflict_again);
    if (state_.notes.refused) wake(view_.now + refused_again);
    if (!state_.notes.unavailable.empty()) wake(view_.now + optional_again);
    if (const Json* route = live_route(); route && !gateway_complaint(*route).empty()) wake(view_.now + route_again);
    if (planning_.wake) wake(*planning_.wake);
    if (spec().policy_ref)
      wake(view_.now + policy_again);  // the user's ConfigMap is not watched: that would need a watch of all ConfigMaps
    if (replica_plan_.wake) wake(*replica_plan_.wake);
    if (!pods_to_probe(view_).empty()) wake(view_.now + probe_again);
    if (!wake_) return std::nullopt;
    return std::max(std::chrono::ceil<std::chrono::milliseconds>(*wake_ - view_.now), std::chrono::milliseconds(100));
  }

 private:
  /// Handles a spec that the schema should have refused: its replicas are assessed and reported, none is created or
  /// replaced.
  std::optional<Request> keep_running_replicas(const char* why) {
    planning_.reason = name_of(Reason::InvalidSizes);
    planning_.message = clip(why, 1000);
    state_.notes.unreadable = true;
    Spec none;
    for (const ReplicaRecord& record : replica_records(*view_.model))
      none.replicas = std::max(none.replicas, record.index + 1);
    spec_ = std::make_shared<const Spec>(std::move(none));
    return reconcile_replicas(worker_pods(view_));
  }

  const std::optional<DeviceInventory>& complete_devices() const {
    static const std::optional<DeviceInventory> none;
    return state_.notes.devices && state_.notes.devices->complete ? state_.notes.devices : none;
  }

  void wake(k8s::WallTime when) { wake_ = wake_ ? std::min(*wake_, when) : when; }

  /// Creates missing Services and the PodDisruptionBudget, corrects drift in our fields, and removes redundant ones.
  std::optional<Request> reconcile_children() {
    if (state_.notes.conflict) return std::nullopt;
    const bool protects = protects_from_eviction(spec(), view_, records(), wanted_->hash);
    const auto children = state_.cache->children(spec_, owner_, pods_->layout.nodes(), protects);
    for (const Json& wanted : *children) {
      const auto& present = *objects_of(view_, resource_of(wanted));
      const auto same = std::find_if(present.begin(), present.end(),
                                     [&](const auto& object) { return k8s::key_of(*object) == k8s::key_of(wanted); });
      if (same == present.end()) return create(wanted);
      if (fields_match(wanted, **same) || k8s::being_deleted(**same)) continue;
      const auto live = state_.notes.live.find(id_of(wanted));
      if (live == state_.notes.live.end()) {
        if (auto request = set_values(wanted, **same)) return request;
        return get(wanted);  // a store may be stale, and retains no managedFields
      }
      if (auto request = correct_drift(wanted, live->second)) return request;
    }
    return remove_redundant(*children);
  }

  /// Removes a PodDisruptionBudget that would protect nothing, and the Service of the ranks once no replica spans
  /// nodes. Kubernetes' controllers would evaluate them at every change of a pod.
  std::optional<Request> remove_redundant(const std::vector<Json>& wanted) const {
    const auto removal = [&](const k8s::Resource& resource, const std::string& name) -> std::optional<Request> {
      if (std::any_of(wanted.begin(), wanted.end(),
                      [&](const Json& child) { return id_of(child) == resource.kind + "/" + name; }))
        return std::nullopt;
      for (const auto& present : *objects_of(view_, resource)) {
        if (k8s::key_of(*present).name == name && !k8s::being_deleted(*present)) return remove(resource, *present);
      }
      return std::nullopt;
    };
    if (!spans_nodes()) {
      if (auto request = removal(k8s::services_resource, ranks_service_name(owner_.key.name))) return request;
    }
    return removal(k8s::pod_disruption_budgets_resource, owner_.key.name);
  }

  /// Returns true while the ranks of some replica may still resolve each other by the names of their pods.
  bool spans_nodes() const {
    return std::any_of(view_.pods.begin(), view_.pods.end(), [](const auto& pod) {
      return k8s::label_of(*pod, label::role) == "worker" &&
             parse_integer(annotation_of(*pod, annotation::nodes)).value_or(1) > 1;
    });
  }

  /// Lists the Events of a pod whose containers are not created for long: it waits for a volume, and only its Events
  /// say which. One pod is enough, for all mount the same volumes. The API server scans all Events of the namespace for
  /// it.
  std::optional<Request> request_pod_events(const std::vector<PodState>& pods) {
    const PodState* next = nullptr;
    k8s::WallTime last{}, longest_ago{};
    for (const PodState& pod : pods) {
      if (!pod.creating_since || pod.deleting) continue;
      if (const k8s::WallTime end = *pod.creating_since + volume_patience; view_.now < end) {
        wake(end);
        continue;
      }
      const auto known = state_.cache->mount_events.find(k8s::uid_of(*pod.object));
      const k8s::WallTime when = known == state_.cache->mount_events.end() ? k8s::WallTime{} : known->second.when;
      last = std::max(last, when);
      if (!next || when < longest_ago) next = &pod, longest_ago = when;
    }
    if (!next) return std::nullopt;
    const k8s::WallTime due = last + volume_again;
    if (due <= view_.now && view_.may_list_events) return events_of_pod({owner_.key.ns, next->name});
    wake(due <= view_.now ? view_.now + volume_crowded : due);
    return std::nullopt;
  }

  /// Reports a volume that the inspect pod or the fetch pod cannot mount.
  std::optional<Request> check_job_volumes() {
    if (planning_.plan && !planning_.fetch) return std::nullopt;
    std::vector<PodState> pods;
    for (const auto& pod : view_.pods) {
      if (k8s::label_of(*pod, label::role) == (planning_.fetch ? "fetch" : "inspect"))
        pods.push_back(pod_state(pod, view_));
    }
    if (auto request = request_pod_events(pods)) return request;
    refine_waits(pods, spec(), view_, state_.cache->mount_events, 0);
    for (const PodState& pod : pods) {
      if (!pod.wait || pod.wait->reason != Reason::VolumeNotMounted) continue;
      if (planning_.fetch) planning_.fetch = Wait{pod.wait->reason, "pod " + pod.name + " waits: " + pod.wait->message};
      if (!planning_.wait) continue;
      planning_.wait = pod.wait;
      planning_.message = "pod " + pod.name + " waits: " + pod.wait->message;
    }
    return std::nullopt;
  }

  std::optional<Request> reconcile_replicas(std::vector<PodState> pods) {
    note_optional_children();
    note_pod_groups(pods);
    const ReplicaInputs view{spec(), view_, records(), std::move(pods), planning_.fetch ? std::nullopt : wanted_};
    replica_plan_ = plan_replicas(view);
    for (const std::string& node : replica_plan_.left_nodes) {
      if (!state_.notes.nodes_read.contains(node)) return get_node(node);
    }
    if (replica_plan_.commit) {
      if (auto request = write(status())) return request;
    }
    for (const Request& action : replica_plan_.actions) {
      const bool makes = action.verb == Verb::Create;
      for (const std::string& node : replica_plan_.dead_nodes) {
        if (makes && !state_.notes.nodes_read.contains(node)) return get_node(node);
      }
      if (makes) {
        if (auto request = make_claim_templates(true)) return request;
      }
      if (!makes || (!state_.notes.conflict && !state_.notes.refused)) return action;
    }
    if (waits_for_claim()) {
      if (auto request = make_claim_templates(false)) return request;
    }
    for (const Json& group : replica_plan_.pod_groups) {
      if (auto request = make_pod_group(group)) return request;
    }
    if (auto request = superseded(planning_, view_, state_.notes.policy)) return request;
    if (auto request = remove_claim_templates()) return request;
    const Json status = this->status();
    for (const bool wanted : {true, false}) {  // a route leaves its InferencePool before that is removed
      for (const OptionalChild& child : optional_children()) {
        if (child.wanted(spec()) != wanted) continue;
        if (auto request = reconcile_optional(child, status)) return request;
      }
    }
    return write(status);
  }

  std::optional<Request> make_pod_group(Json group) const {
    const std::string id = id_of(group);
    if (state_.notes.live.contains(id) || state_.notes.unavailable.contains(pod_group_resources.front().kind))
      return std::nullopt;
    group["apiVersion"] = k8s::api_version_of(pod_group_resources[state_.notes.pod_group_version]);
    return state_.notes.pod_groups_missing.contains(id) ? create(group) : get(group);
  }

  /// Creates the ResourceClaimTemplates that pods name. The status has their names before, for another name is another
  /// pod hash, which is committed before anything is created: no template is forgotten. With `before_pods`, a template
  /// that cannot be created keeps pods from being created.
  std::optional<Request> make_claim_templates(bool before_pods) {
    if (!wanted_ || !spec().devices.claim || state_.notes.conflict || state_.notes.refused) return std::nullopt;
    const std::string& kind = claim_templates_resource.kind;
    for (const Json& wanted : claim_templates(owner_, spec(), pods_->layout)) {
      const std::string id = id_of(wanted), name = k8s::key_of(wanted).name;
      if (const auto live = state_.notes.live.find(id); live != state_.notes.live.end()) {
        if (is_controlled_by(live->second, owner_.uid)) continue;
        state_.notes.conflict = conflict_text(kind + " " + name, live->second);
        return std::nullopt;
      }
      if (const auto why = state_.notes.unavailable.find(kind); why != state_.notes.unavailable.end()) {
        if (before_pods)
          state_.notes.refused = Wait{name_of(Reason::Unschedulable),
                                      "no pod is created without " + kind + " " + name + ": " + why->second};
        return std::nullopt;
      }
      return state_.notes.claim_templates_read.contains(name) ? create(wanted) : get(wanted);
    }
    return std::nullopt;
  }

  /// Returns true while a pod has no node, for the claim of its devices is made from the template.
  bool waits_for_claim() const {
    return std::ranges::any_of(replica_plan_.pods, [](const PodState& pod) {
      return !pod.claim_template.empty() && !pod.bound() && !pod.deleting;
    });
  }

  /// Removes the ResourceClaimTemplates of an earlier spec or plan that no pod names any more.
  std::optional<Request> remove_claim_templates() const {
    const bool undecided = spec().devices.claim && !wanted_;
    if (undecided || state_.notes.conflict || state_.notes.unreadable ||
        state_.notes.unavailable.contains(claim_templates_resource.kind))
      return std::nullopt;
    std::set<std::string> named;
    for (const PodState& pod : replica_plan_.pods) named.insert(pod.claim_template);
    if (wanted_) {
      for (const Json& wanted : claim_templates(owner_, spec(), pods_->layout)) named.insert(k8s::key_of(wanted).name);
    }
    for (const std::string& name : recorded_claim_templates(*view_.model)) {
      if (named.contains(name)) continue;
      if (!state_.notes.claim_templates_read.contains(name))
        return Request{.verb = Verb::Get, .resource = claim_templates_resource, .ns = owner_.key.ns, .name = name};
      const auto live = state_.notes.live.find(claim_templates_resource.kind + "/" + name);
      if (live != state_.notes.live.end() && is_controlled_by(live->second, owner_.uid))
        return remove(claim_templates_resource, live->second);
    }
    return std::nullopt;
  }

  /// Says of pods that wait for a PodGroup why it is not there.
  void note_pod_groups(std::vector<PodState>& pods) const {
    const auto why = state_.notes.unavailable.find(pod_group_resources.front().kind);
    if (why == state_.notes.unavailable.end()) return;
    for (PodState& pod : pods) {
      if (!pod.pod_group.empty() && pod.wait && !pod.bound())
        pod.wait = Wait{name_of(Reason::Unschedulable),
                        "the scheduler waits for PodGroup " + pod.pod_group + ": " + why->second};
    }
  }

  Json status() const { return make_status({owner_, spec(), view_, planning_, replica_plan_, wanted_, state_.notes}); }

  std::optional<Request> reconcile_optional(const OptionalChild& child, const Json& status) {
    const std::string field = std::string("/") + child.status;
    if (!bool_at(status, field) || state_.notes.unavailable.contains(child.resource.kind) || state_.notes.conflict ||
        state_.notes.unreadable)
      return std::nullopt;
    if (!bool_at(*view_.model, "/status" + field)) return write(status);
    const Json wanted = child.build(owner_, spec(), view_, settings_);
    if (!state_.notes.optional_read.contains(child.resource.kind)) return get(wanted);
    const auto live = state_.notes.live.find(id_of(wanted));
    if (live == state_.notes.live.end()) return create(wanted);
    return child.wanted(spec()) ? correct_drift(wanted, live->second) : remove(child.resource, live->second);
  }

  /// Adds to the message of Planned what the optional children lack.
  void note_optional_children() {
    const auto add = [&](const std::string& note) { planning_.note += (planning_.note.empty() ? "" : "; ") + note; };
    for (const OptionalChild& child : optional_children()) {
      const auto why = state_.notes.unavailable.find(child.resource.kind);
      if (child.wanted(spec()) && why != state_.notes.unavailable.end())
        add("no " + child.resource.kind + " (" + child.field + "): " + why->second);
    }
    if (const auto why = state_.notes.unavailable.find(claim_templates_resource.kind);
        spec().devices.claim && why != state_.notes.unavailable.end())
      add("no " + claim_templates_resource.kind + " (devices.claim): " + why->second);
    if (!spec().route) return;
    for (const Canary& canary : spec().route->canaries) {
      if (const std::string why = no_share(canary, view_); !why.empty())
        add("canary " + canary.name + " takes no requests: " + why);
    }
    if (const Json* route = live_route()) {
      if (const std::string why = gateway_complaint(*route); !why.empty()) add(why);
    }
  }

  const Json* live_route() const {
    const auto live = state_.notes.live.find(http_routes_resource.kind + "/" + owner_.key.name);
    return spec().route && live != state_.notes.live.end() ? &live->second : nullptr;
  }

  /// Returns the request that corrects our fields of a live object; nullopt when they are correct, or were corrected in
  /// this reconcile.
  std::optional<Request> correct_drift(const Json& wanted, const Json& live) const {
    if (fields_match(wanted, live) || k8s::being_deleted(live) || state_.notes.drift_corrected.contains(id_of(wanted)))
      return std::nullopt;
    if (auto request = take_over(live)) return request;
    return server_side_apply(wanted, live);
  }

  static bool fields_match(const Json& wanted, const Json& live) {
    return covers(at(live, "/spec"), wanted["spec"]) &&
           covers(at(live, "/metadata/labels"), wanted["metadata"]["labels"]) &&
           annotation_of(wanted, annotation::wanted) == annotation_of(live, annotation::wanted);
  }

  std::optional<Request> write(const Json& status) {
    Json patch = merge_patch(at(*view_.model, "/status"), status);
    if (patch.empty() || state_.written == status)
      return std::nullopt;  // an older CRD may drop a field: one write is enough
    state_.written = status;
    return patch_status(*view_.model, std::move(patch));
  }

  const Spec& spec() const { return *spec_; }
  const std::vector<ReplicaRecord>& records() {
    if (!records_) records_ = replica_records(*view_.model);
    return *records_;
  }

  ReconcileState& state_;
  const Snapshot& view_;
  const Settings& settings_;
  const Owner owner_;
  std::shared_ptr<const Spec> spec_;
  Planning planning_;
  std::shared_ptr<const ModelCache::Pods> pods_;
  std::optional<Wanted> wanted_;
  std::optional<std::vector<ReplicaRecord>> records_;  ///< as stored
  ReplicaPlan replica_plan_;
  std::optional<k8s::WallTime> wake_;
};

}  // namespace

std::variant<Call, Done> reconcile_step(ReconcileState state, const Snapshot& snapshot,
                                        const std::optional<k8s::Response>& response, const Settings& settings) {
  if (!state.view) state.view = snapshot;
  if (!state.cache) state.cache = std::make_shared<ModelCache>();
  const auto end = [&](Done done) {
    done.events = std::move(state.events);
    done.stage_times = std::move(state.stage_times);
    return done;
  };
  std::optional<Request> next;
  if (state.sent && response) {
    AppliedResponse taken = apply_response(state, *response);
    if (taken.end) return end(std::move(*taken.end));
    next = std::move(taken.follow_up);
  }
  state.sent.reset();
  if (!state.view->model || k8s::being_deleted(*state.view->model) ||
      k8s::uid_of(*state.view->model) == state.cache->gone)
    return end({});  // the garbage collector deletes the children
  std::optional<std::chrono::milliseconds> requeue;
  if (!next) {
    ReconcileStep step(state, settings);
    next = step.next();
    if (!next) requeue = step.requeue();
  }
  if (!next) return end({.requeue_after = requeue});
  if (++state.requests > max_requests) return end({.error = "too many requests in one reconcile"});
  state.sent = next;
  return Call{std::move(state), std::move(*next)};
}

}  // namespace pm::op
