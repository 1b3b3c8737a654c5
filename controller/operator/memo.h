// What follows from a spec and a stored plan, worked out once: reading, rendering and hashing them is most of a pass.
#pragma once
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "controller/core/packed.h"
#include "controller/operator/desired.h"
#include "controller/operator/pod_state.h"
#include "controller/operator/snapshot.h"

namespace pm::op {

/// The last few values, by all that they were made from.
template <class Key, class Value>
class Recent {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, Make make) {
    return find([&](const Key& known) { return known == key; }, [&] { return key; }, make);
  }
  /// The same for keys that cost something to make: `is` compares a known key with what there is now.
  template <class Is, class MakeKey, class Make>
  std::shared_ptr<const Value> find(Is is, MakeKey make_key, Make make) {
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
      if (!is(entry->key)) continue;
      entries_.splice(entries_.begin(), entries_, entry);
      entries_.front().used = true;
      return entries_.front().value;
    }
    auto value = std::make_shared<const Value>(make());
    entries_.push_front({make_key(), std::move(value), true});
    if (entries_.size() > most) entries_.pop_back();
    return entries_.front().value;
  }
  /// What nobody asked for since the last time.
  void forget_unused() {
    entries_.remove_if([](Entry& entry) { return !std::exchange(entry.used, false); });
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Value> value;
    bool used;
  };
  static constexpr size_t most = 4;     ///< an edit and its way back, with a policy that changes meanwhile
  std::list<Entry> entries_;
};

/// Of one ParallelModel, for one pass at a time. Inputs are compared as values, not by version: whatever changes is worked out anew, and but for the first three
/// members no answer of a pass depends on what is remembered.
class Memo {
 public:
  /// uid of a ParallelModel that the API server said is not there any more, although a store may show it for long: nothing is made for it.
  std::string gone;
  /// When the API server first answered 500 to the creation of a pod, of all times since it made one.
  std::optional<k8s::WallTime> pods_fail_since;
  /// uid of a pod whose containers are not made -> what Events last said of it.
  std::map<std::string, Heard> heard;

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
  /// All Services and the disruption budget that there should be.
  std::shared_ptr<const std::vector<Json>> children(const std::shared_ptr<const Spec>& spec, const Owner&, int nodes_per_group);
  /// inspect_pod().
  std::shared_ptr<const Json> inspect_pod(const std::shared_ptr<const Spec>& spec, const Owner&, const Settings&, const std::optional<Policy>&);
  /// At the end of a pass: all that this pass had no use for. A thousand ParallelModels at rest remember little.
  void forget_unused();

 private:
  /// The object itself, as long as it is there, is the same without a look; else its contents are compared. No key holds an object: stores make them anew.
  struct SpecKey {
    std::weak_ptr<const Json> model;
    k8s::Packed spec;
  };
  struct HashesKey {
    std::shared_ptr<const Spec> spec;
    std::string restarted_at, copy;
    bool operator==(const HashesKey&) const = default;
  };
  struct PlanKey {
    std::weak_ptr<const Json> map;
    std::string uid;                    ///< of an immutable one, whose data no other version has; else ""
    std::string digest;                 ///< SHA-256 of name and data
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
  Recent<ChildrenKey, k8s::Packed> children_;
  std::shared_ptr<const k8s::Packed> unpacked_;              ///< what of children_ stands in child_trees_, until forget_unused()
  std::shared_ptr<const std::vector<Json>> child_trees_;
  Recent<InspectKey, Json> inspect_pods_;
};

}  // namespace pm::op
