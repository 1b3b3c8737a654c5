#include "controller/operator/planning.h"

#include <algorithm>
#include <stdexcept>

#include "controller/operator/hardware.h"
#include "controller/operator/pod_parts.h"
#include "controller/operator/requests.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

constexpr std::chrono::seconds claim_again{30};

bool has_role(const Json& object, const char* role) { return k8s::label_of(object, label::role) == role; }

std::vector<k8s::ObjectPtr> with_role(const std::vector<k8s::ObjectPtr>& objects, const char* role) {
  std::vector<k8s::ObjectPtr> out;
  for (const auto& object : objects) {
    if (has_role(*object, role) && !k8s::being_deleted(*object)) out.push_back(object);
  }
  return out;
}

k8s::ObjectPtr with_annotation(const std::vector<k8s::ObjectPtr>& objects, const std::string& name, const std::string& value) {
  for (const auto& object : objects) {
    if (annotation_of(*object, name) == value) return object;
  }
  return nullptr;
}

class Planner {
 public:
  Planner(const Owner& owner, const std::shared_ptr<const Spec>& spec, const Snapshot& snapshot, const Settings& settings, const std::optional<PolicyAnswer>& answer,
          const std::optional<Claim>& claim, Memo& memo)
      : owner_(owner), read_(spec), spec_(*spec), snapshot_(snapshot), settings_(settings), answer_(answer), claim_(claim), memo_(memo),
        policy_(answer ? answer->policy : std::nullopt), maps_(with_role(snapshot.config_maps, "plan")), hashes_(memo.hashes(spec, owner, copy_name())) {}

  Planning run() {
    try {
      if (answer_ && !policy_) keep_without_policy();
      else if (policy_ && !copied()) act(create(policy_copy(owner_, *answer_)));
      else if (const auto map = with_annotation(maps_, annotation::inputs, hashes_->inputs)) use(map);
      else if (const auto facts = known_facts()) decide_from(*facts);
    } catch (const std::exception& error) {
      refuse("InspectFailed", std::string(error.what()) + "; delete that ConfigMap to inspect and plan anew");
    }
    return std::move(out_);
  }

 private:
  std::string copy_name() const { return policy_ ? policy_->copy : ""; }

  bool copied() const {
    const auto ours = with_role(snapshot_.config_maps, "policy");
    return std::any_of(ours.begin(), ours.end(), [&](const auto& map) { return k8s::key_of(*map).name == policy_->copy; });
  }

  /// The plan stands; of a model on the hub the bytes may have to come first.
  void use(const k8s::ObjectPtr& map) {
    out_.plan = memo_.plan(map);
    if (!spec_.source.hub) return;
    Fetching fetching = fetching_of(owner_, spec_, snapshot_, settings_, *out_.plan, *map, hashes_->source, claim_);
    if (fetching.done) return;
    out_.fetch = Wait{fetching.reason, fetching.message};
    out_.action = std::move(fetching.action);
    out_.asks_claim = fetching.asks_claim;
    out_.wake = fetching.wake;
  }

  /// The user's policy is gone. A plan that was made with it stands, and so do its pods, on the copy; nothing new is made without it.
  void keep_without_policy() {
    for (const auto& map : maps_) {
      const std::string copy = annotation_of(*map, annotation::policy);
      if (copy.empty() || annotation_of(*map, annotation::inputs) != memo_.hashes(read_, owner_, copy)->inputs) continue;
      out_.plan = memo_.plan(map);   // and its bytes are on the claim, for the pods of a former pass run on them
      out_.note = answer_->missing + "; the policy that was there before stays in use";
      return;
    }
    refuse("PolicyNotFound", answer_->missing);
    out_.waiting = true;
  }

  /// Facts of this checkpoint from an earlier plan or the inspect pod; without them, out_ says what happens instead.
  std::optional<Facts> known_facts() {
    if (const auto map = with_annotation(maps_, annotation::source, hashes_->source)) return stored_facts(*map);
    const auto made = memo_.inspect_pod(read_, owner_, settings_, policy_);
    const std::string wanted = k8s::label_of(*made, label::pod_hash), generation = std::to_string(owner_.generation);
    for (const auto& pod : snapshot_.pods) {
      if (!has_role(*pod, "inspect")) continue;
      const PodState state = pod_state(pod, snapshot_);
      const Inspection inspection = inspection_of(state);
      const bool same_source = annotation_of(*pod, annotation::source) == hashes_->source;
      if (same_source && inspection.facts) return inspection.facts;
      const bool useful = same_source && state.hash == wanted && (!inspection.failed || annotation_of(*pod, annotation::generation) == generation);
      if (state.deleting) {
        if (state.name == inspect_pod_name(owner_.key.name, owner_.generation)) return wait_for("the old inspect pod " + state.name + " goes away");
        continue;
      }
      if (!useful) return act(remove(k8s::Pods, *pod, 0));
      return report(*pod, inspection);
    }
    if (spec_.source.hub && !spec_.source.hub->own_claim && !known_claim()) return std::nullopt;
    return act(create(*made));
  }

  /// Before a network is asked: the claim that somebody else has to make is there.
  bool known_claim() {
    if (!claim_) {
      out_.asks_claim = true;
      wait_for("the claim is looked at");
      return false;
    }
    if (!claim_->known || claim_->found) return true;
    refuse("ClaimNotFound", "PersistentVolumeClaim " + spec_.source.claim + " of spec.model.cache.claimName is not in namespace " + owner_.key.ns + "; create it, or leave claimName out to have one made");
    out_.waiting = true;
    out_.wake = snapshot_.now + claim_again;
    return false;
  }

  std::optional<Facts> report(const Json& pod, const Inspection& inspection) {
    const bool blames = policy_ && inspection.message.find(path_of(*policy_)) != std::string::npos;   // with its line
    refuse(inspection.reason, (blames ? "ConfigMap " + spec_.policy_ref->name + ": " : "") + inspection.message);
    out_.waiting = !inspection.failed;
    out_.wait = inspection.wait;
    if (!inspection.failed) return std::nullopt;
    out_.wake = inspection.finished.value_or(snapshot_.now) + (inspection.reason == "SourceUnreachable" ? pause_after(inspection.reason) : inspect_again);
    if (*out_.wake <= snapshot_.now) out_.action = remove(k8s::Pods, pod, 0);
    return std::nullopt;
  }

  void decide_from(const Facts& facts) {
    const auto hardware = hardware_of(spec_, snapshot_);
    if (const auto* refusal = std::get_if<Refusal>(&hardware)) {
      refuse(refusal->reason, refusal->message);
      return;
    }
    Decision decision;
    try {
      decision = decide(facts, std::get<Hardware>(hardware), wishes_of(spec_));
    } catch (const std::exception& error) {
      refuse("InvalidSizes", error.what());
      return;
    }
    if (!decision.plan) {
      refuse(decision.refusal ? decision.refusal->reason : "DoesNotFit", decision.refusal ? decision.refusal->message : "the planner gave no reason");
      if (decision.refusal) out_.rejected = decision.refusal->rejected;
      return;
    }
    if (!can_share(layout_of(spec_, *decision.plan).nodes())) return;
    store(plan_config_map(owner_, spec_, facts, *decision.plan, default_group_image(spec_, settings_), policy_));
  }

  /// A group over several nodes mounts its checkpoint on each of them.
  bool can_share(int nodes) {
    if (nodes < 2) return true;
    const std::string claim = "PersistentVolumeClaim " + spec_.source.claim;
    if (!claim_) {
      out_.asks_claim = true;
      wait_for("the access modes of " + claim + " are read");
      return false;
    }
    if (!claim_->known || (claim_->found && claim_->shareable) || (!claim_->found && spec_.source.hub && spec_.source.hub->own_claim)) return true;
    out_.wake = snapshot_.now + claim_again;
    if (!claim_->found) {
      refuse("ClaimNotFound", claim + " is not in namespace " + owner_.key.ns);
      out_.waiting = true;
      return false;
    }
    refuse("ClaimNotShareable", claim + " is " + claim_->modes + ", which one node at a time may mount, and a group of " + std::to_string(nodes) +
                                    " pods needs it on several: use a claim with ReadOnlyMany or ReadWriteMany, or leave devices.perNode out so that a group stays on one node");
    return false;
  }

  /// The same plan may follow from other wishes: then its ConfigMap stays and only learns of them.
  void store(const Json& wanted) {
    for (const auto& map : maps_) {
      if (k8s::key_of(*map) == k8s::key_of(wanted)) {
        act(annotate(k8s::ConfigMaps, *map, wanted["metadata"]["annotations"]));
        return;
      }
    }
    act(create(with_bytes(wanted)));
  }

  /// Another plan of the same checkpoint finds its bytes on the claim.
  Json with_bytes(Json map) const {
    if (spec_.source.hub && with_annotation(maps_, annotation::fetched, hashes_->source)) map["metadata"]["annotations"][annotation::fetched] = hashes_->source;
    return map;
  }

  std::nullopt_t act(k8s::Request request) {
    out_.action = std::move(request);
    return wait_for("the checkpoint is about to be inspected");
  }
  std::nullopt_t wait_for(const std::string& message) {
    refuse("Inspecting", message);
    out_.waiting = true;
    return std::nullopt;
  }
  void refuse(const std::string& reason, const std::string& message) {
    out_.reason = reason_word(reason, "InspectFailed");
    out_.message = clip(message, 1800);
  }

  const Owner& owner_;
  const std::shared_ptr<const Spec>& read_;
  const Spec& spec_;
  const Snapshot& snapshot_;
  const Settings& settings_;
  const std::optional<PolicyAnswer>& answer_;
  const std::optional<Claim>& claim_;
  Memo& memo_;
  const std::optional<Policy> policy_;
  const std::vector<k8s::ObjectPtr> maps_;
  const std::shared_ptr<const Memo::Hashes> hashes_;
  Planning out_;
};

/// Some of the objects has this value of an annotation.
bool names(const std::vector<k8s::ObjectPtr>& objects, const std::string& annotation, const std::string& value) {
  return with_annotation(objects, annotation, value) != nullptr;
}

std::optional<k8s::Request> superseded_by(const Planning& planning, const Snapshot& snapshot) {
  const StoredPlan& current = *planning.plan;
  for (const auto& pod : with_role(snapshot.pods, "inspect")) return remove(k8s::Pods, *pod, 0);
  if (!planning.fetch) {
    for (const auto& pod : with_role(snapshot.pods, "fetch")) return remove(k8s::Pods, *pod, 0);
  }
  for (const auto& map : with_role(snapshot.config_maps, "plan")) {
    const std::string name = k8s::key_of(*map).name;
    if (name != current.name && !names(snapshot.pods, annotation::plan, name)) return remove(k8s::ConfigMaps, *map);
  }
  return std::nullopt;
}

}  // namespace

Planning planning_of(const Owner& owner, const std::shared_ptr<const Spec>& spec, const Snapshot& snapshot, const Settings& settings,
                     const std::optional<PolicyAnswer>& policy, const std::optional<Claim>& claim, Memo& memo) {
  return Planner(owner, spec, snapshot, settings, policy, claim, memo).run();
}

std::optional<k8s::Request> superseded(const Planning& planning, const Snapshot& snapshot, const std::optional<PolicyAnswer>& policy) {
  if (planning.plan) {
    if (auto request = superseded_by(planning, snapshot)) return request;
  }
  const std::string present = policy && policy->policy ? policy->policy->copy : "";
  for (const auto& map : with_role(snapshot.config_maps, "policy")) {
    const std::string name = k8s::key_of(*map).name;
    if (name == present || names(snapshot.pods, annotation::policy, name) || names(snapshot.config_maps, annotation::policy, name)) continue;
    return remove(k8s::ConfigMaps, *map);
  }
  return std::nullopt;
}

}  // namespace pm::op
