#include "controller/operator/memo.h"

#include "controller/operator/text.h"

namespace pm::op {

bool Memo::SpecKey::operator==(const SpecKey& other) const { return model == other.model || at(*model, "/spec") == at(*other.model, "/spec"); }

std::shared_ptr<const Spec> Memo::spec(const k8s::ObjectPtr& model) {
  return specs_.get({model}, [&] { return spec_of(*model); });
}

std::shared_ptr<const Memo::Hashes> Memo::hashes(const std::shared_ptr<const Spec>& spec, const Owner& owner, const std::string& policy_copy) {
  return hashes_.get({spec, owner.restarted_at, policy_copy}, [&] { return Hashes{source_hash(*spec, owner, policy_copy), inputs_hash(*spec, owner, policy_copy)}; });
}

bool Memo::PlanKey::operator==(const PlanKey& other) const {
  return map == other.map || (k8s::key_of(*map) == k8s::key_of(*other.map) && at(*map, "/data") == at(*other.map, "/data"));
}

std::shared_ptr<const StoredPlan> Memo::plan(const k8s::ObjectPtr& config_map) {
  return plans_.get({config_map}, [&] { return stored_plan(*config_map); });
}

std::shared_ptr<const Memo::Pods> Memo::pods(const std::shared_ptr<const Spec>& spec, const Owner& owner, const std::shared_ptr<const StoredPlan>& plan, const Settings& settings) {
  return pods_.get({spec, plan, owner.key, owner.restarted_at, settings}, [&] {
    Layout layout = layout_of(*spec, plan->plan);
    std::string hash = pod_hash_of({owner, *spec, *plan, layout, settings});
    return Pods{std::move(layout), std::move(hash)};
  });
}

std::shared_ptr<const std::vector<Json>> Memo::children(const std::shared_ptr<const Spec>& spec, const Owner& owner, int nodes) {
  return children_.get({spec, owner.key, owner.uid, nodes}, [&] { return std::vector<Json>{ranks_service(owner), http_service(owner, *spec), disruption_budget(owner, *spec, nodes)}; });
}

std::shared_ptr<const Json> Memo::inspect_pod(const std::shared_ptr<const Spec>& spec, const Owner& owner, const Settings& settings, const std::optional<Policy>& policy) {
  return inspect_pods_.get({spec, owner.key, owner.uid, owner.restarted_at, owner.generation, settings, to_text(policy)}, [&] { return op::inspect_pod(owner, *spec, settings, policy); });
}

}  // namespace pm::op
