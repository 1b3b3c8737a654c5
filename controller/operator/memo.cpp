#include "controller/operator/memo.h"

#include "controller/operator/text.h"

namespace pm::op {

std::shared_ptr<const Spec> Memo::spec(const Json& model) {
  return specs_.get(at(model, "/spec"), [&] { return spec_of(model); });
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

}  // namespace pm::op
