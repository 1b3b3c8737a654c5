// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/children/model_cache.h"

#include "base/digest.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

/// Compares by the identity of the object, not by its address, which a later object may get.
bool is(const std::weak_ptr<const Json>& known, const k8s::ObjectPtr& object) {
  return !known.owner_before(object) && !object.owner_before(known);
}

/// Hashes the name and all data, each with its length.
std::string digest_of_map(const Json& config_map) {
  std::string text = k8s::key_of(config_map).name;
  const auto add = [&](const std::string& part) {
    text.append("\n").append(std::to_string(part.size())).append(" ").append(part);
  };
  const Json& data = at(config_map, "/data");
  if (!data.is_object()) return base::sha256(text);
  for (const auto& [key, value] : data.items())
    add(key), add(value.is_string() ? value.get_ref<const std::string&>() : value.dump());
  return base::sha256(text);
}

}  // namespace

std::shared_ptr<const Spec> ModelCache::spec(const k8s::ObjectPtr& model) {
  const Json& spec = at(*model, "/spec");
  return specs_.find([&](const SpecKey& known) { return is(known.model, model) || known.spec.unpack() == spec; },
                     [&] { return SpecKey{model, k8s::Packed(spec)}; }, [&] { return parse_spec(*model); });
}

std::shared_ptr<const ModelCache::Hashes> ModelCache::hashes(const std::shared_ptr<const Spec>& spec,
                                                             const Owner& owner, const std::string& policy_copy) {
  return hashes_.get({spec, owner.restarted_at, policy_copy}, [&] {
    return Hashes{source_hash(*spec, owner, policy_copy), inputs_hash(*spec, owner, policy_copy)};
  });
}

std::shared_ptr<const StoredPlan> ModelCache::plan(const k8s::ObjectPtr& config_map) {
  const std::string uid = bool_at(*config_map, "/immutable") ? k8s::uid_of(*config_map) : "";
  std::string digest;
  const auto look = [&]() -> const std::string& {
    return digest.empty() ? digest = digest_of_map(*config_map) : digest;
  };
  return plans_.find(
      [&](const PlanKey& known) {
        return is(known.map, config_map) || (!uid.empty() && known.uid == uid) || known.digest == look();
      },
      [&] { return PlanKey{config_map, uid, look()}; }, [&] { return stored_plan(*config_map); });
}

std::shared_ptr<const ModelCache::Pods> ModelCache::pods(const std::shared_ptr<const Spec>& spec, const Owner& owner,
                                                         const std::shared_ptr<const StoredPlan>& plan,
                                                         const Settings& settings) {
  return pods_.get({spec, plan, owner.key, owner.restarted_at, settings}, [&] {
    PodLayout layout = make_pod_layout(*spec, plan->plan);
    std::string hash = pod_hash_of({owner, *spec, *plan, layout, settings});
    return Pods{std::move(layout), std::move(hash)};
  });
}

std::shared_ptr<const std::vector<Json>> ModelCache::children(const std::shared_ptr<const Spec>& spec,
                                                              const Owner& owner, int nodes, bool protects) {
  const auto made = children_.get({spec, owner.key, owner.uid, nodes, protects}, [&] {
    Json all = Json::array({http_service(owner, *spec)});
    if (nodes > 1) all.push_back(ranks_service(owner));
    if (auto budget = disruption_budget(owner, *spec, nodes, protects)) all.push_back(std::move(*budget));
    return k8s::Packed(all);
  });
  if (made != unpacked_) {
    Json all = made->unpack();
    child_trees_ = std::make_shared<const std::vector<Json>>(std::move(all.get_ref<Json::array_t&>()));
    unpacked_ = made;
  }
  return child_trees_;
}

std::shared_ptr<const Json> ModelCache::inspect_pod(const std::shared_ptr<const Spec>& spec, const Owner& owner,
                                                    const Settings& settings, const std::optional<Policy>& policy) {
  return inspect_pods_.get(
      {spec, owner.key, owner.uid, owner.restarted_at, owner.generation, settings, to_text(policy)},
      [&] { return op::inspect_pod(owner, *spec, settings, policy); });
}

void ModelCache::forget_unused() {
  specs_.forget_unused(), hashes_.forget_unused(), plans_.forget_unused(), pods_.forget_unused(),
      children_.forget_unused(), inspect_pods_.forget_unused();
  unpacked_.reset(), child_trees_.reset();
}

}  // namespace pm::op
