// SPDX-License-Identifier: Apache-2.0
// Declares the cache of what follows from a spec and a stored plan. Parsing, rendering and hashing dominate a
// reconcile.
#pragma once
#include <list>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "controller/core/packed.h"
#include "controller/operator/children/desired.h"
#include "controller/operator/observed/pod_state.h"
#include "controller/operator/observed/snapshot.h"

namespace pm::op {

/// A least-recently-used cache of a few values by their inputs.
template <class Key, class Value>
class LruCache {
 public:
  template <class Make>
  std::shared_ptr<const Value> get(const Key& key, Make make) {
    return find([&](const Key& known) { return known == key; }, [&] { return key; }, make);
  }
  /// The same for keys that are costly to make: `is` compares a cached key with the current inputs.
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
    if (entries_.size() > max_entries) entries_.pop_back();
    return entries_.front().value;
  }
  /// Drops the entries that were not used since the last call.
  void forget_unused() {
    entries_.remove_if([](Entry& entry) { return !std::exchange(entry.used, false); });
  }

 private:
  struct Entry {
    Key key;
    std::shared_ptr<const Value> value;
    bool used;
  };
  static constexpr size_t max_entries = 4;  ///< enough for an edit, its revert and a policy that changes in between
  std::list<Entry> entries_;
};

/// The cache of one ParallelModel, for one reconcile at a time. Inputs are compared by value, not by version, so every
/// change is computed again. Only the first three members affect the result of a reconcile.
class ModelCache {
 public:
  /// The uid of a ParallelModel that the API server no longer has, although a stale store may still show it. Nothing is
  /// created for it.
  std::string gone;
  /// The time of the first 500 for the creation of a pod since the last success.
  std::optional<k8s::WallTime> pods_fail_since;
  /// The last mount Events by uid of a pod whose containers are not created.
  std::map<std::string, MountEvent> mount_events;

  struct Hashes {
    std::string source, inputs;
  };
  struct Pods {
    PodLayout layout;
    std::string hash;
  };

  /// Returns parse_spec(model) and throws as it does.
  std::shared_ptr<const Spec> spec(const k8s::ObjectPtr& model);
  /// Returns source_hash() and inputs_hash(). `spec` must come from spec() of this owner.
  std::shared_ptr<const Hashes> hashes(const std::shared_ptr<const Spec>& spec, const Owner&,
                                       const std::string& policy_copy);
  /// Returns stored_plan(config_map) and throws as it does.
  std::shared_ptr<const StoredPlan> plan(const k8s::ObjectPtr& config_map);
  /// Returns make_pod_layout() and pod_hash_of(). `spec` and `plan` must come from this cache.
  std::shared_ptr<const Pods> pods(const std::shared_ptr<const Spec>& spec, const Owner&,
                                   const std::shared_ptr<const StoredPlan>& plan, const Settings&);
  /// Returns the desired Services and PodDisruptionBudget.
  std::shared_ptr<const std::vector<Json>> children(const std::shared_ptr<const Spec>& spec, const Owner&,
                                                    int nodes_per_replica, bool protects);
  /// Returns inspect_pod().
  std::shared_ptr<const Json> inspect_pod(const std::shared_ptr<const Spec>& spec, const Owner&, const Settings&,
                                          const std::optional<Policy>&);
  /// Drops what the last reconcile did not use, so that the caches of a thousand idle ParallelModels stay small.
  void forget_unused();

 private:
  /// A live object is compared by identity, any other by content. Keys hold no object, for stores unpack a new one each
  /// time.
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
    std::string uid;     ///< of an immutable ConfigMap, whose data never changes; else ""
    std::string digest;  ///< SHA-256 of name and data
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
    bool protects;
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

  LruCache<SpecKey, Spec> specs_;
  LruCache<HashesKey, Hashes> hashes_;
  LruCache<PlanKey, StoredPlan> plans_;
  LruCache<PodsKey, Pods> pods_;
  LruCache<ChildrenKey, k8s::Packed> children_;
  std::shared_ptr<const k8s::Packed>
      unpacked_;  ///< the entry of children_ that child_trees_ holds until forget_unused()
  std::shared_ptr<const std::vector<Json>> child_trees_;
  LruCache<InspectKey, Json> inspect_pods_;
};

}  // namespace pm::op
