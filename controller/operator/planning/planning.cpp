// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/planning.h"

#include <algorithm>
#include <stdexcept>

#include "contract/worker_arguments.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/requests.h"
#include "controller/operator/children/pod_parts.h"
#include "controller/operator/planning/hardware.h"

namespace pm::op {

namespace {

constexpr std::chrono::seconds claim_again{30}, devices_again{60}, shares_again{30};

bool has_role(const Json& object, const char* role) { return k8s::label_of(object, label::role) == role; }

std::vector<k8s::ObjectPtr> with_role(const std::vector<k8s::ObjectPtr>& objects, const char* role) {
  std::vector<k8s::ObjectPtr> out;
  for (const auto& object : objects) {
    if (has_role(*object, role) && !k8s::being_deleted(*object)) out.push_back(object);
  }
  return out;
}

k8s::ObjectPtr with_annotation(const std::vector<k8s::ObjectPtr>& objects, const std::string& name,
                               const std::string& value) {
  for (const auto& object : objects) {
    if (annotation_of(*object, name) == value) return object;
  }
  return nullptr;
}

/// Returns the name of the adapter whose folder in an inspect pod the message names; "" for none.
std::string blamed_adapter(const Json& pod, const std::string& message) {
  std::string name, folder;
  bool follows = false;
  for (const Json& argument : pod["spec"]["containers"][0]["args"]) {
    const std::string text = argument.get<std::string>();
    const size_t equals = text.find('=');
    if (follows && equals != std::string::npos && text.size() - equals - 1 > folder.size() &&
        message.find(text.substr(equals + 1)) != std::string::npos) {
      name = text.substr(0, equals);
      folder = text.substr(equals + 1);
    }
    follows = text == flag::adapter.name;
  }
  return name;
}

/// Returns true for a message about what drafts: it begins with its flag, behind a reason that the condition lacks.
bool blames(Flag<std::string> flag, const std::string& message) {
  const size_t at = message.find(flag.name);
  return at == 0 || (at != std::string::npos && message.find(": ") + 2 == at);
}

class Planner {
 public:
  Planner(const Owner& owner, const std::shared_ptr<const Spec>& spec, const Snapshot& snapshot,
          const Settings& settings, const std::optional<PolicyAnswer>& answer, const std::optional<Claim>& claim,
          const std::optional<DeviceInventory>& devices, ModelCache& cache)
      : owner_(owner),
        read_(spec),
        spec_(*spec),
        snapshot_(snapshot),
        settings_(settings),
        answer_(answer),
        claim_(claim),
        devices_(devices),
        cache_(cache),
        policy_(answer ? answer->policy : std::nullopt),
        maps_(with_role(snapshot.config_maps, "plan")),
        hashes_(cache.hashes(spec, owner, copy_name())) {}

  Planning run() {
    try {
      if (answer_ && !policy_)
        keep_without_policy();
      else if (policy_ && !copied())
        act(create(policy_copy(owner_, *answer_)));
      else if (const auto map = with_annotation(maps_, annotation::inputs, hashes_->inputs))
        use(map);
      else if (const auto metadata = known_metadata())
        decide_from(*metadata);
    } catch (const std::exception& error) {
      refuse(name_of(Reason::InspectFailed),
             std::string(error.what()) + "; delete that ConfigMap to inspect and plan again");
    }
    return std::move(out_);
  }

 private:
  std::string copy_name() const { return policy_ ? policy_->copy : ""; }

  bool copied() const {
    const auto ours = with_role(snapshot_.config_maps, "policy");
    return std::any_of(ours.begin(), ours.end(),
                       [&](const auto& map) { return k8s::key_of(*map).name == policy_->copy; });
  }

  /// Finishes a plan. A model on the hub may have to be fetched first.
  void use(const k8s::ObjectPtr& map) {
    out_.plan = cache_.plan(map);
    if (!spec_.source.hub) return;
    Fetching fetching = plan_fetch(owner_, spec_, snapshot_, settings_, *out_.plan, *map, hashes_->source, claim_);
    out_.fetch_seconds = parse_integer(annotation_of(*map, annotation::fetch_seconds));
    if (fetching.done) return;
    out_.fetch = Wait{fetching.reason, fetching.message};
    out_.action = std::move(fetching.action);
    out_.asks_claim = fetching.asks_claim;
    out_.wake = fetching.wake;
  }

  /// Handles a policy that the user deleted. A plan that was made with it holds, and its pods mount the copy; nothing
  /// new is created without it. While an update removes the previous plan there are two, of which status names the one
  /// in use.
  void keep_without_policy() {
    const std::string in_use = plan_name(owner_.key.name, k8s::string_at(*snapshot_.model, "/status/plan/planHash"));
    k8s::ObjectPtr kept;
    for (const auto& map : maps_) {
      const std::string copy = annotation_of(*map, annotation::policy);
      if (copy.empty() || annotation_of(*map, annotation::inputs) != cache_.hashes(read_, owner_, copy)->inputs)
        continue;
      if (!kept || k8s::key_of(*map).name == in_use) kept = map;
    }
    if (kept) {
      out_.plan = cache_.plan(kept);  // its checkpoint is on the PVC, for pods of an earlier reconcile use it
      out_.note = answer_->missing + "; the policy that was there before stays in use";
      return;
    }
    refuse(name_of(Reason::PolicyNotFound), answer_->missing);
    out_.waiting = true;
  }

  /// Returns the metadata of this checkpoint from an earlier plan or the inspect pod. Without it, out_ says what
  /// follows.
  std::optional<ModelMetadata> known_metadata() {
    if (const auto map = with_annotation(maps_, annotation::source, hashes_->source)) return stored_metadata(*map);
    const auto made = cache_.inspect_pod(read_, owner_, settings_, policy_);
    const std::string wanted = k8s::label_of(*made, label::pod_hash), generation = std::to_string(owner_.generation);
    for (const auto& pod : snapshot_.pods) {
      if (!has_role(*pod, "inspect")) continue;
      const PodState state = pod_state(pod, snapshot_);
      const Inspection inspection = parse_inspection(state);
      const bool same_source = annotation_of(*pod, annotation::source) == hashes_->source;
      if (same_source && inspection.metadata) return inspection.metadata;
      const bool useful = same_source && state.hash == wanted &&
                          (!inspection.failed || annotation_of(*pod, annotation::generation) == generation);
      if (state.deleting) {
        if (state.name == inspect_pod_name(owner_.key.name, owner_.generation))
          return wait_for("the old inspect pod " + state.name + " goes away");
        continue;
      }
      if (!useful) return act(remove(k8s::pods_resource, *pod, 0));
      return report(*pod, *made, inspection);
    }
    if (spec_.source.hub && !spec_.source.hub->own_claim && !known_claim()) return std::nullopt;
    return act(create(*made));
  }

  /// Checks that the PVC of the user exists before anything is read over the network.
  bool known_claim() {
    if (!claim_) {
      out_.asks_claim = true;
      wait_for("the PVC is being read");
      return false;
    }
    if (!claim_->known || claim_->found) return true;
    refuse(name_of(Reason::ClaimNotFound), "PersistentVolumeClaim " + spec_.source.claim +
                                               " of spec.model.cache.claimName is not in namespace " + owner_.key.ns +
                                               "; create it, or omit claimName so that the operator creates one");
    out_.waiting = true;
    out_.wake = snapshot_.now + claim_again;
    return false;
  }

  /// Returns the part of the spec that a message of the pod is about, as the beginning of a sentence; "" for the model.
  std::string blamed(const Json& made, const std::string& message) const {
    if (blames(flag::draft_model, message)) return "draft model of spec.model.draft: ";
    if (blames(flag::speculation, message)) return "drafts of spec.serving.speculation: ";
    if (policy_ && message.find(path_of(*policy_)) != std::string::npos)  // the message names the line of the policy
      return "ConfigMap " + spec_.policy_ref->name + ": ";
    const std::string adapter = blamed_adapter(made, message);
    return adapter.empty() ? "" : "adapter " + adapter + " of spec.model.adapters: ";
  }

  /// `made` is the pod as it was created: what the store keeps of it has no arguments.
  std::optional<ModelMetadata> report(const Json& pod, const Json& made, const Inspection& inspection) {
    refuse(inspection.reason, blamed(made, inspection.message) + inspection.message);
    out_.waiting = !inspection.failed;
    out_.wait = inspection.wait;
    if (!inspection.failed) return std::nullopt;
    out_.wake = inspection.finished.value_or(snapshot_.now) +
                (inspection.reason == Reason::SourceUnreachable ? pause_after(inspection.reason) : inspect_again);
    if (*out_.wake <= snapshot_.now) out_.action = remove(k8s::pods_resource, pod, 0);
    return std::nullopt;
  }

  void decide_from(const ModelMetadata& metadata) {
    const bool by_slices = needs_inventory(spec_, snapshot_);
    if (by_slices && !devices_) {
      out_.asks_devices = true;
      wait_for("the ResourceSlices are being read");
      return;
    }
    const auto hardware = hardware_of(spec_, snapshot_, by_slices ? devices_ : std::nullopt);
    if (const auto* refusal = std::get_if<Refusal>(&hardware)) {
      refuse(name_of(refusal->reason), refusal->message);
      if (refusal->reason == Reason::DoesNotFit) out_.wake = snapshot_.now + shares_again;  // pods of others may end
      if (by_slices) out_.wake = snapshot_.now + devices_again;  // neither slices nor classes are watched
      return;
    }
    Decision decision;
    try {
      decision = decide(metadata, std::get<Hardware>(hardware), planner_constraints(spec_));
    } catch (const std::exception& error) {
      refuse(name_of(Reason::InvalidSizes), error.what());
      return;
    }
    if (!decision.plan) {
      refuse(name_of(decision.refusal ? decision.refusal->reason : Reason::DoesNotFit),
             decision.refusal ? decision.refusal->message : "the planner gave no reason");
      if (by_slices) out_.wake = snapshot_.now + devices_again;
      if (decision.refusal) out_.rejected = decision.refusal->rejected;
      return;
    }
    if (!can_share(make_pod_layout(spec_, *decision.plan).nodes())) return;
    store(plan_config_map(owner_, spec_, metadata, *decision.plan, default_replica_image(spec_, settings_), policy_));
  }

  /// Checks the access mode of the PVC, for a replica over several nodes mounts the checkpoint on each of them.
  bool can_share(int nodes) {
    if (nodes < 2 || !spec_.source.image.empty()) return true;  // each node pulls the image
    const std::string claim = "PersistentVolumeClaim " + spec_.source.claim;
    if (!claim_) {
      out_.asks_claim = true;
      wait_for("the access modes of " + claim + " are read");
      return false;
    }
    if (!claim_->known || (claim_->found && claim_->shareable) ||
        (!claim_->found && spec_.source.hub && spec_.source.hub->own_claim))
      return true;
    out_.wake = snapshot_.now + claim_again;
    if (!claim_->found) {
      refuse(name_of(Reason::ClaimNotFound), claim + " is not in namespace " + owner_.key.ns);
      out_.waiting = true;
      return false;
    }
    refuse(name_of(Reason::ClaimNotShareable),
           claim + " is " + claim_->modes + ", which one node at a time may mount, and a replica of " +
               std::to_string(nodes) +
               " pods needs it on several: use a PVC with ReadOnlyMany or ReadWriteMany, or "
               "omit devices.perNode so that a replica stays on one node");
    return false;
  }

  /// Other constraints may lead to the same plan. Then its ConfigMap stays, and only its annotation changes.
  void store(const Json& wanted) {
    for (const auto& map : maps_) {
      if (k8s::key_of(*map) == k8s::key_of(wanted)) {
        act(annotate(k8s::config_maps_resource, *map, wanted["metadata"]["annotations"]));
        return;
      }
    }
    act(create(with_bytes(wanted)));
  }

  /// Adds what is known of the download when the PVC already holds this checkpoint for another plan.
  Json with_bytes(Json map) const {
    const auto fetched = spec_.source.hub ? with_annotation(maps_, annotation::fetched, hashes_->source) : nullptr;
    if (!fetched) return map;
    for (const std::string& name : {annotation::fetched, annotation::fetch_seconds}) {
      if (const std::string value = annotation_of(*fetched, name); !value.empty())
        map["metadata"]["annotations"][name] = value;
    }
    return map;
  }

  std::nullopt_t act(k8s::Request request) {
    out_.action = std::move(request);
    return wait_for("the inspection of the checkpoint starts soon");
  }
  std::nullopt_t wait_for(const std::string& message) {
    refuse(name_of(Reason::Inspecting), message);
    out_.waiting = true;
    return std::nullopt;
  }
  void refuse(const std::string& reason, const std::string& message) {
    out_.reason = reason_word(reason, name_of(Reason::InspectFailed));
    out_.message = clip(message, 1800);
  }

  const Owner& owner_;
  const std::shared_ptr<const Spec>& read_;
  const Spec& spec_;
  const Snapshot& snapshot_;
  const Settings& settings_;
  const std::optional<PolicyAnswer>& answer_;
  const std::optional<Claim>& claim_;
  const std::optional<DeviceInventory>& devices_;
  ModelCache& cache_;
  const std::optional<Policy> policy_;
  const std::vector<k8s::ObjectPtr> maps_;
  const std::shared_ptr<const ModelCache::Hashes> hashes_;
  Planning out_;
};

/// Returns true when one of the objects has this value of an annotation.
bool names(const std::vector<k8s::ObjectPtr>& objects, const std::string& annotation, const std::string& value) {
  return with_annotation(objects, annotation, value) != nullptr;
}

std::optional<k8s::Request> superseded_by(const Planning& planning, const Snapshot& snapshot) {
  const StoredPlan& current = *planning.plan;
  for (const auto& pod : with_role(snapshot.pods, "inspect")) return remove(k8s::pods_resource, *pod, 0);
  if (!planning.fetch) {
    for (const auto& pod : with_role(snapshot.pods, "fetch")) return remove(k8s::pods_resource, *pod, 0);
  }
  for (const auto& map : with_role(snapshot.config_maps, "plan")) {
    const std::string name = k8s::key_of(*map).name;
    if (name != current.name && !names(snapshot.pods, annotation::plan, name))
      return remove(k8s::config_maps_resource, *map);
  }
  return std::nullopt;
}

}  // namespace

Planning plan_model(const Owner& owner, const std::shared_ptr<const Spec>& spec, const Snapshot& snapshot,
                    const Settings& settings, const std::optional<PolicyAnswer>& policy,
                    const std::optional<Claim>& claim, const std::optional<DeviceInventory>& devices,
                    ModelCache& cache) {
  return Planner(owner, spec, snapshot, settings, policy, claim, devices, cache).run();
}

std::optional<k8s::Request> superseded(const Planning& planning, const Snapshot& snapshot,
                                       const std::optional<PolicyAnswer>& policy) {
  if (planning.plan) {
    if (auto request = superseded_by(planning, snapshot)) return request;
  }
  const std::string present = policy && policy->policy ? policy->policy->copy : "";
  for (const auto& map : with_role(snapshot.config_maps, "policy")) {
    const std::string name = k8s::key_of(*map).name;
    if (name == present || names(snapshot.pods, annotation::policy, name) ||
        names(snapshot.config_maps, annotation::policy, name))
      continue;
    return remove(k8s::config_maps_resource, *map);
  }
  return std::nullopt;
}

}  // namespace pm::op
