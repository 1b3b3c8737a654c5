// What follows from a spec and a stored plan, worked out once: reading, rendering and hashing them is most of a pass.
#pragma once
#include <list>
#include <memory>
#include <string>
#include <utility>

#include "controller/operator/desired.h"

namespace pm::op {

/// The last few values, by all that they were made from.
template <class Key, class Value>
class Recent {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, Make make) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!(entry->first == key)) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      return entries_.front().second;
    }
    entries_.emplace_front(key, std::make_shared<const Value>(make()));
    if (entries_.size() > most) entries_.pop_back();
    return entries_.front().second;
  }

 private:
  static constexpr size_t most = 4;     ///< an edit and its way back, with a policy that changes meanwhile
  std::list<std::pair<Key, std::shared_ptr<const Value>>> entries_;
};

/// Of one ParallelModel, for one pass at a time. Inputs are compared as values, not by version: whatever changes is worked out anew, and but for `gone` no
/// answer of a pass depends on what is remembered.
class Memo {
 public:
  /// uid of a ParallelModel that the API server said is not there any more, although a store may show it for long: nothing is made for it.
  std::string gone;

  struct Hashes { std::string source, inputs; };
  struct Pods { Layout layout; std::string hash; };

  /// spec_of(model). Throws as it does.
  std::shared_ptr<const Spec> spec(const k8s::ObjectPtr& model);
  /// source_hash() and inputs_hash(); `spec` is what spec() gave for this owner.
  std::shared_ptr<const Hashes> hashes(const std::shared_ptr<const Spec>& spec, const Owner&, const std::string& policy_copy);
  /// stored_plan(config_map). Throws as it does.
  std::shared_ptr<const StoredPlan> plan(const k8s::ObjectPtr& config_map);
  /// layout_of() and pod_hash_of(); `spec` and `plan` are what this memo gave.
  std::shared_ptr<const Pods> pods(const std::shared_ptr<const Spec>& spec, const Owner&, const std::shared_ptr<const StoredPlan>& plan, const Settings&);
  /// ranks_service(), http_service() and disruption_budget().
  std::shared_ptr<const std::vector<Json>> children(const std::shared_ptr<const Spec>& spec, const Owner&, int nodes_per_group);
  /// inspect_pod().
  std::shared_ptr<const Json> inspect_pod(const std::shared_ptr<const Spec>& spec, const Owner&, const Settings&, const std::optional<Policy>&);

 private:
  struct SpecKey {
    k8s::ObjectPtr model;
    bool operator==(const SpecKey&) const;
  };
  struct HashesKey {
    std::shared_ptr<const Spec> spec;
    std::string restarted_at, copy;
    bool operator==(const HashesKey&) const = default;
  };
  struct PlanKey {
    k8s::ObjectPtr map;
    bool operator==(const PlanKey&) const;
  };
  struct PodsKey {
    std::shared_ptr<const Spec> spec;
    std::shared_ptr<const StoredPlan> plan;
    k8s::Key model;
    std::string restarted_at;
    Settings settings;
    bool operator==(const PodsKey&) const = default;
  };
  struct ChildrenKey {
    std::shared_ptr<const Spec> spec;
    k8s::Key model;
    std::string uid;
    int nodes;
    bool operator==(const ChildrenKey&) const = default;
  };
  struct InspectKey {
    std::shared_ptr<const Spec> spec;
    k8s::Key model;
    std::string uid, restarted_at;
    int64_t generation;
    Settings settings;
    std::string policy;
    bool operator==(const InspectKey&) const = default;
  };

  Recent<SpecKey, Spec> specs_;
  Recent<HashesKey, Hashes> hashes_;
  Recent<PlanKey, StoredPlan> plans_;
  Recent<PodsKey, Pods> pods_;
  Recent<ChildrenKey, std::vector<Json>> children_;
  Recent<InspectKey, Json> inspect_pods_;
};

}  // namespace pm::op
