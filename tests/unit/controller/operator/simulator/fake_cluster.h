// SPDX-License-Identifier: Apache-2.0
// Simulates an API server with kubelets, scheduler and garbage collector in this process, without threads. The state
// machine of the operator runs against it. It is as strict as a real one about uids, resourceVersions, AlreadyExists
// and preconditions.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/object.h"
#include "controller/operator/reconcile/reconcile_step.h"

namespace pm::op::test {

using k8s::Json;
class StateIds;

class FakeCluster final : public k8s::Api {
 public:
  /// An object, and the pruned form that a store of the operator retains; null when no watch selects it.
  struct Stored {
    k8s::ObjectPtr object, kept;
    mutable uint32_t number = 0;                                          ///< its state id; 0: not computed yet
    mutable std::shared_ptr<const std::vector<int64_t>> times = nullptr;  ///< the same; null: none
  };
  using Objects = std::map<std::pair<std::string, k8s::Key>, Stored>;  ///< by (plural, key)
  /// An event of a watch, pruned as in the stores of the operator. For a deletion, `object` is the last state with the
  /// version of the deletion.
  struct Event {
    bool removed = false;
    k8s::ObjectPtr object;
  };

  FakeCluster();

  k8s::Response send(const k8s::Request&) override;

  // Actions of users.
  void apply(const Json& model);                       ///< creates it, or replaces spec and annotations
  void edit(const std::function<void(Json& model)>&);  ///< a change of spec raises the generation
  void remove_model();                                 ///< the garbage collector then deletes the children
  void put(const char* plural, Json object,
           bool is_new = true);  ///< an object of somebody else, or a node; false changes an existing one
  void put_map(const std::string& name, const Json& data);  ///< creates or changes a ConfigMap of the user
  void remove_map(const std::string& name);
  void delete_pod(const std::string& name);  ///< as kubectl delete does
  void change_pod(const std::string& name, const std::function<void(Json& pod)>&);
  void show_devices(int count);  ///< sets the devices in the status of node-a
  void add_node(const std::string& name, int devices);
  /// Adds a DeviceClass of a driver, and a ResourceSlice of node-a with so many devices of so much memory.
  void publish_devices(int count, const std::string& memory, const std::string& device_class = "gpus");
  void cordon(const std::string& name, bool unschedulable = true);
  /// Marks a pod with a condition that announces its end, then deletes it, as the eviction API does.
  void evict(const std::string& pod, const std::string& condition = "DisruptionTarget",
             const std::string& reason = "EvictionByEvictionAPI");
  void set_node_ready(const std::string& name,
                      bool ready);  ///< false: its kubelet and its pods are gone
  // Actions of the cluster.
  /// Runs one second of kubelets, scheduler and garbage collector: pods are bound, run, become ready and end.
  void tick();
  /// Ends the worker of a pod with this termination message.
  void end_worker(const std::string& pod, int code, const Json& words);
  void advance(std::chrono::seconds time) { now_ += time; }

  Snapshot snapshot() const { return snapshot_of(objects_); }
  /// Returns the snapshot before the last `behind` writes by anybody.
  Snapshot stale_snapshot(size_t behind) const;
  /// Counts the watch events of a collection, and returns the n-th.
  size_t happened(const std::string& plural) const;
  const Event& event(const std::string& plural, size_t n) const;
  /// Drops the events before the n-th, which all watchers have received.
  void forget(const std::string& plural, size_t n);
  /// Returns the pruned objects that the watch selects; list() returns all objects as they are.
  std::vector<k8s::ObjectPtr> watched(const std::string& plural) const;
  std::vector<k8s::ObjectPtr> list(const std::string& plural) const;
  std::vector<Json> all(const std::string& plural) const;
  const Json* find(const std::string& plural, const std::string& name) const;
  const Json& model() const { return *find("parallelmodels", model_name); }
  std::vector<std::string> pod_names() const;
  /// Returns the policy that a pod mounts; "" without one.
  std::string policy_of(const Json& pod) const;
  std::vector<Json> with_role(const std::string& plural, const std::string& role) const;
  const Json* condition(const std::string& type) const;
  std::string reason(const std::string& type) const;
  bool is_true(const std::string& type) const;
  bool waits() const;  ///< true when time alone will change something soon: a back-off, a surge
  int64_t version() const { return version_; }
  k8s::WallTime now() const { return now_; }

  /// Returns the state ids of all objects in order, and the ages in seconds of the times in them.
  std::vector<uint32_t> numbers(StateIds&, std::vector<int64_t>& ages) const;
  /// Returns true when the other cluster has the same versions of the same objects at the same time.
  bool same_versions(const FakeCluster&) const;
  /// Returns the state that must not depend on the history: without uids, versions and times.
  Json digest() const;
  /// The same without generations and restarts of replicas, for runs in which somebody interfered.
  Json shape() const;
  /// The invariants violated so far: two live generations of a replica, a pod before its generation was written, an
  /// object created twice, a correctly serving replica deleted.
  std::vector<std::string> violations;

  int writes = 0;  ///< requests by the operator that changed something
  int requests = 0;
  std::vector<std::string> log;  ///< "Create pods m-0-0-1", ...
  // Settings.
  bool logs = true;
  bool remembers = false;                                                  ///< needed by stale_snapshot(), and slow
  Json metadata;                                                           ///< the output of inspect pods
  std::function<std::optional<Json>(const std::string&)> validate_policy;  ///< their error for a user's policy
  std::optional<Json> inspect_failure;                                     ///< {"reason", "message"} of inspect pods
  std::optional<Json> fetch_failure;                                       ///< {"reason", "message"} of fetch pods
  bool fetches_end = true;                                                 ///< false: they run for ever
  std::map<std::string, Json> probes;                                      ///< /status by pod name
  std::string worker_mount_failure;                                        ///< as mount_failure, for workers only
  bool claim_goes = false;  ///< the PVC exists for the inspect pod and is then gone
  bool claim_exists = true, workers_start = true, workers_ready = true, collects = true;
  std::string mount_failure;                        ///< the message of Events of pods whose volumes cannot be mounted
  std::string kubelet_says = "FailedMount";         ///< the reason of these Events
  std::string waiting_reason = "ImagePullBackOff";  ///< of workers that do not start
  bool serves_optional = false;                     ///< the CRDs of optional children are installed
  std::set<std::string> pod_group_versions;         ///< of scheduling.k8s.io; empty: no PodGroups
  bool serves_devices = false;                      ///< of resource.k8s.io/v1: classes, slices and claims
  std::string broken_image;                         ///< workers with this image never become ready
  int devices = 8;                                  ///< of node-a
  int drain_seconds = 0;                            ///< how long a deleted pod still runs
  std::function<std::optional<k8s::ApiError>(const k8s::Request&)> refuse;
  Json taken;  ///< the last status.replicaStatuses after somebody cleared the status, until it is written again
  std::function<void(Json&)>
      undoes;  ///< an admission webhook that changes applied objects, or a CRD that drops a field
  std::string model_name = "m";

 private:
  Snapshot snapshot_of(const Objects&) const;
  k8s::Response answer(const k8s::Request&);
  k8s::Response create(const k8s::Request&);
  k8s::Response patch(const k8s::Request&, const Json& object);
  k8s::Response apply(const k8s::Request&, const Json& object);
  k8s::Response erase(const k8s::Request&);
  const Json& store(const std::string& plural, Json object);
  void drop(const std::string& plural, const k8s::Key& key);
  void remember();
  void check_pod(const Json& pod);
  void claim_devices(Json& pod);
  void check_deletion(const Json& pod);
  std::string new_uid(const std::string& plural, const std::string& name);
  void collect();
  void run_pod(Json& pod);
  void bind(Json& pod);
  /// Returns why a pod with a scheduling group has to wait although it has room itself.
  std::string held_by_group(const Json& pod) const;
  std::map<std::string, int> free_devices() const;
  bool lacks_volume(const Json& pod) const;
  bool dead(const Json& pod) const;
  bool rests(const Json& pod) const;
  bool may_be_ready(const Json& pod) const {
    return workers_ready && k8s::string_at(pod, "/spec/containers/0/image") != broken_image;
  }

  Objects objects_;
  struct WatchEvents {
    size_t forgotten = 0;
    std::vector<Event> events;
  };
  std::map<std::string, WatchEvents> watch_events_;  ///< by plural
  std::map<std::string, int> more_nodes_;            ///< beside node-a, with their devices
  std::set<std::string> dead_nodes_;
  std::vector<Objects> history_;
  int64_t version_ = 100;
  std::map<std::string, int> made_;  ///< creations by "plural/name"
  k8s::WallTime now_;
};

/// Returns a ParallelModel with the defaults of the API server.
Json model_named(const std::string& name, int devices = 2, int replicas = 1);
/// Returns a spec.router with an InferencePool and an HTTPRoute, 90 requests to the model and 10 to the canary.
Json router_to(const std::string& canary);
/// Returns the metadata of a small GPT-2.
Json small_metadata();
Settings settings();

}  // namespace pm::op::test
