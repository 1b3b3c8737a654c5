// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/reconcile/apply_response.h"

#include <algorithm>

#include "controller/core/status_error.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/requests.h"
#include "controller/operator/children/optional_children.h"

namespace pm::op {

namespace {

using k8s::Failure;
using k8s::Request;
using k8s::Verb;

constexpr std::chrono::seconds failure_patience{10};
constexpr const char* no_image_volumes =
    "; models by oci:// need image volumes, as Kubernetes 1.35 has them, or 1.33 with the feature gate ImageVolume";

void put(Snapshot& view, const k8s::Resource& resource, Json object) {
  auto* objects = objects_of(view, resource);
  if (!objects) return;
  const k8s::Key key = k8s::key_of(object);
  std::erase_if(*objects, [&](const auto& present) { return k8s::key_of(*present) == key; });
  objects->push_back(std::make_shared<const Json>(std::move(object)));
}

class ResponseApplier {
 public:
  ResponseApplier(ReconcileState& state) : state_(state), view_(*state.view), sent_(*state.sent) {}

  std::optional<Done> apply_response(const k8s::Response& response) {
    if (sent_.verb == Verb::Get && state_.asks_policy) return policy(response);
    if (sent_.verb == Verb::Get && state_.asks_claim) return claim(response);
    if (state_.asks_devices) return devices(response);
    if (sent_.resource == claim_templates_resource) return claim_template(response);
    if (sent_.resource == k8s::nodes_resource) return node(response);
    if (sent_.resource.kind == pod_group_resources.front().kind) return pod_group(response);
    if (k8s::failed(response)) return failure(k8s::error_of(response));
    const Json& object = k8s::object_of(response);
    if (sent_.verb == Verb::Get && sent_.resource != k8s::persistent_volume_claims_resource) return found(object);
    if (sent_.resource == k8s::persistent_volume_claims_resource)
      state_.notes.claim = parse_claim(response);
    else if (sent_.verb == Verb::Create)
      created(object);
    else if (sent_.verb == Verb::List)
      note_events(object);
    else if (sent_.verb == Verb::MergePatch || sent_.verb == Verb::Apply)
      patched(object);
    else if (sent_.verb == Verb::Delete)
      deleted();
    return std::nullopt;
  }

  /// The request that must follow this response at once.
  std::optional<Request> follow_up;

 private:
  /// Takes the user's ConfigMap. NotFound and Forbidden are results too; any other error ends the reconcile.
  std::optional<Done> policy(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden) return failure(*error);
    state_.asks_policy = false;
    state_.notes.policy = parse_policy(parse_owner(*view_.model), *parse_spec(*view_.model).policy_ref, response);
    return std::nullopt;
  }

  std::optional<Done> claim(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden) return failure(*error);
    state_.asks_claim = false;
    state_.notes.claim = parse_claim(response);
    return std::nullopt;
  }

  /// Takes a part of the device inventory. NotFound and Forbidden are results too: not every cluster has the API.
  std::optional<Done> devices(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    state_.asks_devices = false;
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden)
      return Done{.error = sent_.resource.kind + ": " + k8s::to_string(*error)};
    add_response(*state_.cache->spec(view_.model), response, *state_.notes.devices);
    return std::nullopt;
  }

  /// Takes a ResourceClaimTemplate that was read, created or removed. Without it, or the right to it, no pod is created
  /// that needs it.
  std::optional<Done> claim_template(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && sent_.verb == Verb::Create && error->failure == Failure::AlreadyExists) return failure(*error);
    const bool gone = error
                          ? error->failure == Failure::NotFound && (sent_.verb == Verb::Delete || names_object(*error))
                          : sent_.verb == Verb::Delete;
    if (error && !gone) return no_claim_template(*error);
    state_.notes.claim_templates_read.insert(sent_.name);
    if (gone) {
      forget();
      return std::nullopt;
    }
    const Json& object = k8s::object_of(response);
    if (is_former(object)) return Done{.error = uncollected()};
    state_.notes.live[sent_.resource.kind + "/" + sent_.name] = object;
    return std::nullopt;
  }

  std::optional<Done> no_claim_template(const k8s::ApiError& error) {
    if (k8s::transient(error) || error.failure == Failure::Conflict) return failure(error);
    const std::string& kind = sent_.resource.kind;
    const bool lacks_right = error.failure == Failure::Forbidden && error.message.find("quota") == std::string::npos;
    state_.notes.unavailable[kind] =
        error.failure == Failure::NotFound
            ? "the cluster does not serve resource.k8s.io/v1, as Kubernetes does from 1.34 on"
        : lacks_right
            ? "the controller may not access " + sent_.resource.plural + ": install the chart with dra.enabled=true"
            : "the API server refuses it: " + clip(error.message, 700);
    return std::nullopt;
  }

  /// Replaces a node of the view by its current state. Without the right to read nodes, the watched state stands.
  std::optional<Done> node(const k8s::Response& response) {
    const auto* error = std::get_if<k8s::ApiError>(&response);
    if (error && error->failure != Failure::NotFound && error->failure != Failure::Forbidden) return failure(*error);
    state_.notes.nodes_read.insert(sent_.name);
    if (!view_.nodes || (error && error->failure == Failure::Forbidden)) return std::nullopt;
    std::erase_if(*view_.nodes, [&](const auto& node) { return k8s::key_of(*node).name == sent_.name; });
    if (!error) view_.nodes->push_back(std::make_shared<const Json>(k8s::object_of(response)));
    return std::nullopt;
  }

  /// Takes a PodGroup that was read or created. Where the API server serves none of its versions, or grants no access,
  /// the replica waits as it is, and its status says why.
  std::optional<Done> pod_group(const k8s::Response& response) {
    if (!k8s::failed(response)) return pod_group_found(k8s::object_of(response));
    const k8s::ApiError& error = k8s::error_of(response);
    const std::string& kind = sent_.resource.kind;
    if (error.failure == Failure::NotFound && names_object(error)) {
      state_.notes.pod_groups_missing.insert(kind + "/" + sent_.name);
    } else if (error.failure == Failure::NotFound) {
      if (++state_.notes.pod_group_version == pod_group_resources.size())
        state_.notes.unavailable[kind] =
            "the cluster has no PodGroup: Kubernetes serves it from 1.36 on, with the "
            "feature gates GenericWorkload and GangScheduling";
    } else if (error.failure == Failure::Forbidden) {
      state_.notes.unavailable[kind] =
          "the controller may not access podgroups: install the chart with podGroups.enabled=true";
    } else {
      return failure(error);
    }
    return std::nullopt;
  }

  /// A group whose owners are none of our pods is that of an earlier ParallelModel of this name, which goes soon, or of
  /// another owner.
  std::optional<Done> pod_group_found(const Json& object) {
    const Json& owners = at(object, "/metadata/ownerReferences");
    const bool ours = owners.is_array() && std::ranges::any_of(owners, [&](const Json& owner) {
                        return std::ranges::any_of(view_.pods, [&](const auto& pod) {
                          return k8s::uid_of(*pod) == k8s::string_at(owner, "/uid");
                        });
                      });
    if (!ours && k8s::being_deleted(object))
      return Done{.error = "PodGroup " + sent_.name + " of a deleted ParallelModel of this name is not collected yet"};
    if (ours)
      state_.notes.live[id_of(object)] = object;
    else
      state_.notes.unavailable[sent_.resource.kind] = "it exists and belongs to none of these pods; delete it";
    return std::nullopt;
  }

  /// Returns true for a NotFound that is about an object. Without its CRD the API server does not serve the path, and
  /// its message does not name the object.
  bool names_object(const k8s::ApiError& error) const {
    return error.message.find("\"" + sent_.name + "\" not found") != std::string::npos;
  }

  void created(const Json& object) {
    if (sent_.resource == k8s::pods_resource) state_.cache->pods_fail_since.reset();
    if (optional_child(sent_.resource)) state_.notes.live[id_of(object)] = object;
    put(view_, sent_.resource, object);
  }

  /// Handles an error of a request for an optional child.
  std::optional<Done> unavailable(const OptionalChild& child, const k8s::ApiError& error) {
    const std::string& kind = child.resource.kind;
    state_.notes.optional_read.insert(kind);
    const bool absent = error.failure == Failure::NotFound;
    if (absent && names_object(error)) {
      forget();
    } else {
      if (child.resource == inference_pools_resource) view_.serves_pools = false;
      state_.notes.unavailable[kind] =
          absent ? "the cluster has no " + kind + ": " + child.provider + " is not installed"
          : error.failure == Failure::Forbidden ? "the controller may not access " + child.resource.plural +
                                                      ": install the chart with " + child.value + "=true"
                                                : clip(k8s::to_string(error), 300);
    }
    return std::nullopt;
  }

  std::optional<Done> failure(const k8s::ApiError& error) {
    if (sent_.verb == Verb::Create && error.failure == Failure::AlreadyExists) {
      follow_up = get(sent_);
      return std::nullopt;
    }
    const OptionalChild* optional = optional_child(sent_.resource);
    if (optional && !k8s::transient(error) && error.failure != Failure::Conflict) return unavailable(*optional, error);
    const bool looks = sent_.verb == Verb::Get && objects_of(view_, sent_.resource);
    if ((sent_.verb == Verb::Delete || looks) && error.failure == Failure::NotFound) {
      forget();
      return std::nullopt;
    }
    if (sent_.verb == Verb::MergePatch && sent_.resource == parallel_models_resource) {
      if (error.failure == Failure::NotFound) {  // it was deleted in the meantime
        state_.cache->gone = k8s::uid_of(*view_.model);
        return Done{};
      }
      if (error.failure == Failure::Invalid && state_.notes.truncation_level < 2) {
        ++state_.notes.truncation_level;
        return std::nullopt;
      }
    }
    if (sent_.verb == Verb::List) {  // Events are optional
      mount_event().when = view_.now;
      return std::nullopt;
    }
    if (sent_.verb == Verb::Create && sent_.resource == k8s::pods_resource) {
      const bool refused = error.failure == Failure::Forbidden || error.failure == Failure::Invalid;
      const bool quota = error.message.find("exceeded quota") != std::string::npos;
      // a server that does not know image volumes drops the only source of this one
      const bool volumes = error.message.find("must specify a volume type") != std::string::npos;
      if (refused || fails_for_long(error)) {
        state_.notes.refused =
            Wait{quota ? name_of(Reason::QuotaExceeded) : name_of(Reason::Unschedulable),
                 std::string("the API server ") + (refused ? "refuses" : "fails to make") + " pod " + sent_.name +
                     ": " + clip(error.message, 700) + (volumes ? no_image_volumes : "")};
        return std::nullopt;
      }
    }
    return Done{.error = sent_.resource.kind + " " + sent_.name + ": " + k8s::to_string(error)};
  }

  /// Returns true when pod creation has failed with status 500 for long. A failing admission plugin or webhook looks
  /// like that; it may recover in a moment, or last until somebody repairs it.
  bool fails_for_long(const k8s::ApiError& error) {
    if (error.code != 500) return false;
    auto& since = state_.cache->pods_fail_since;
    if (!since) since = view_.now;
    return view_.now - *since >= failure_patience;
  }

  /// Classifies the object whose name was taken: it is owned by this ParallelModel (after a stale snapshot or a lost
  /// response), by a deleted one of the same name, or by somebody else.
  std::optional<Done> found(const Json& object) {
    if (is_controlled_by(object, k8s::uid_of(*view_.model))) {
      state_.notes.live[id_of(object)] = object;
      if (optional_child(sent_.resource)) state_.notes.optional_read.insert(sent_.resource.kind);
      put(view_, sent_.resource, object);
      return std::nullopt;
    }
    if (is_former(object)) return Done{.error = uncollected()};
    state_.notes.conflict = conflict_text(sent_.resource.kind + " " + sent_.name, object);
    return std::nullopt;
  }

  /// Returns true for a child of an earlier ParallelModel of this name.
  bool is_former(const Json& object) const {
    const auto controller = k8s::controller_of(object);
    return controller && controller->kind == parallel_models_resource.kind &&
           controller->name == k8s::key_of(*view_.model).name && controller->uid != k8s::uid_of(*view_.model);
  }
  std::string uncollected() const {
    return sent_.resource.kind + " " + sent_.name + " of a deleted ParallelModel of this name is not collected yet";
  }

  void patched(const Json& object) {
    if (sent_.resource != parallel_models_resource) {
      state_.notes.live[id_of(object)] = object;
      if (sent_.verb == Verb::Apply) state_.notes.drift_corrected.insert(id_of(object));
      return put(view_, sent_.resource, object);
    }
    const Json &before = at(*view_.model, "/status"), &after = at(object, "/status");
    const auto observed = status_events(before, after);
    state_.events.insert(state_.events.end(), observed.begin(), observed.end());
    const auto times = new_stage_times(before, after);
    state_.stage_times.insert(state_.stage_times.end(), times.begin(), times.end());
    view_.model = std::make_shared<const Json>(object);
  }

  /// Marks a pod as being deleted, for it exists until its kubelet confirms. Other objects are removed from the view.
  void deleted() {
    if (sent_.resource != k8s::pods_resource) return forget();
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

  /// Returns the entry of the pod whose Events were listed. Drops the entries of pods that are gone.
  MountEvent& mount_event() {
    auto& all = state_.cache->mount_events;
    std::erase_if(all, [&](const auto& known) {
      return std::none_of(view_.pods.begin(), view_.pods.end(),
                          [&](const auto& pod) { return k8s::uid_of(*pod) == known.first; });
    });
    const std::string name = pod_of_events();
    const auto pod = std::find_if(view_.pods.begin(), view_.pods.end(),
                                  [&](const auto& one) { return k8s::key_of(*one).name == name; });
    return all[pod == view_.pods.end() ? name : k8s::uid_of(**pod)];
  }

  void note_events(const Json& list) {
    MountEvent& observed = mount_event();
    observed = {.when = view_.now};
    Wait& wait = observed.wait;
    const Json& items = at(list, "/items");
    if (!items.is_array()) return;
    for (const Json& event : items) {
      const std::string reason = k8s::string_at(event, "/reason");
      const std::string note = clip(k8s::string_at(event, "/note"), 700);
      if (note.empty()) continue;
      if (reason == "FailedMount" || reason == "FailedAttachVolume")
        wait = {name_of(Reason::VolumeNotMounted), note};
      else if (reason == "FailedCreatePodSandBox" && wait.reason.empty())
        wait = {name_of(Reason::Starting), "the kubelet cannot create its sandbox: " + note};
    }
  }

  ReconcileState& state_;
  Snapshot& view_;
  const Request& sent_;
};

}  // namespace

AppliedResponse apply_response(ReconcileState& state, const k8s::Response& response) {
  ResponseApplier applier(state);
  auto end = applier.apply_response(response);
  return {std::move(end), std::move(applier.follow_up)};
}

}  // namespace pm::op
