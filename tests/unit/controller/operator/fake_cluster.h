// A model of an API server with its kubelets and garbage collector, in this process and without threads: what the operator's step machine is
// run against. As strict as the real one where the operator could be wrong: uids, resourceVersions, AlreadyExists, preconditions.
#pragma once
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core/api.h"
#include "controller/core/object.h"
#include "controller/operator/step.h"

namespace pm::op::test {

using k8s::Json;
class Numbers;

class FakeCluster final : public k8s::Api {
 public:
  /// An object, and what a store of the operator keeps of it; the latter null for what no watch of it selects.
  struct Stored {
    k8s::ObjectPtr object, kept;
    mutable uint32_t number = 0;        ///< of numbers(); 0: not asked for yet
    mutable std::shared_ptr<const std::vector<int64_t>> times = nullptr;   ///< the same; null: none
  };
  using Objects = std::map<std::pair<std::string, k8s::Key>, Stored>;   ///< by (plural, key)
  /// What a watch tells; `object` is the last state for a deletion, with the version of the deletion. Pruned as the operator's stores do.
  struct Event { bool removed = false; k8s::ObjectPtr object; };

  FakeCluster();

  k8s::Response send(const k8s::Request&) override;

  // The user.
  void apply(const Json& model);                                      ///< create, or replace spec and annotations
  void edit(const std::function<void(Json& model)>&);                 ///< a change of spec raises the generation
  void remove_model();                                                ///< and let children be collected
  void put(const char* plural, Json object, bool anew = true);        ///< somebody else's object, or a node; else a change of one that is there
  void put_map(const std::string& name, const Json& data);            ///< a ConfigMap of the user, new or with other contents
  void remove_map(const std::string& name);
  void delete_pod(const std::string& name);                           ///< as kubectl delete does
  void change_pod(const std::string& name, const std::function<void(Json& pod)>&);
  void show_devices(int count);                                       ///< of node-a, in its status
  void add_node(const std::string& name, int devices);
  void set_node_ready(const std::string& name, bool ready);           ///< not ready: its kubelet is gone, and with it what ran there
  // The machine.
  /// One second of kubelets, scheduler and collector: pods are bound, run, become ready, end; a deleted pod ends.
  void tick();
  /// The worker of a pod ends with these words.
  void end_worker(const std::string& pod, int code, const Json& words);
  void advance(std::chrono::seconds time) { now_ += time; }

  Snapshot snapshot() const { return snapshot_of(objects_); }
  /// As of `behind` writes ago (by anybody): a consistent cut of the past.
  Snapshot stale_snapshot(size_t behind) const;
  /// What happened to a collection and passes the selector of its watch: how much, and the n-th.
  size_t happened(const std::string& plural) const;
  const Event& event(const std::string& plural, size_t n) const;
  /// Everybody has heard of what was before the n-th.
  void forget(const std::string& plural, size_t n);
  /// What a list of the same answers now, pruned; and without a selector, whole.
  std::vector<k8s::ObjectPtr> watched(const std::string& plural) const;
  std::vector<k8s::ObjectPtr> list(const std::string& plural) const;
  std::vector<Json> all(const std::string& plural) const;
  const Json* find(const std::string& plural, const std::string& name) const;
  const Json& model() const { return *find("parallelmodels", model_name); }
  std::vector<std::string> pod_names() const;
  /// What a pod reads as a user's policy; "" without one.
  std::string policy_of(const Json& pod) const;
  std::vector<Json> with_role(const std::string& plural, const std::string& role) const;
  const Json* condition(const std::string& type) const;
  std::string reason(const std::string& type) const;
  bool is_true(const std::string& type) const;
  bool waits() const;                                                 ///< time alone will change something soon: a back-off, a surge
  int64_t version() const { return version_; }
  k8s::WallTime now() const { return now_; }

  /// All objects by their numbers, in order, and how many seconds ago the times are that they tell.
  std::vector<uint32_t> numbers(Numbers&, std::vector<int64_t>& ages) const;
  /// The other cluster holds the same versions of the same objects, at the same time.
  bool same_versions(const FakeCluster&) const;
  /// Everything that should not depend on how the operator got there: no uids, versions, times.
  Json digest() const;
  /// The same without what tells how often a group was made: for runs in which somebody interfered.
  Json shape() const;
  /// Broken promises so far: two live incarnations of a group, a pod before its incarnation was written, an object made twice, a group taken down that serves as it should.
  std::vector<std::string> violations;

  int writes = 0;                                                     ///< requests by the operator that changed something
  int requests = 0;
  std::vector<std::string> log;                                       ///< "Create pods m-0-0-1", ...
  // Behaviour.
  bool logs = true;
  bool remembers = false;                                             ///< for stale_snapshot(); costs more than all the rest
  Json facts;                                                         ///< what inspect pods say
  std::function<std::optional<Json>(const std::string&)> judge;       ///< and what they say against a user's policy
  std::optional<Json> inspect_failure;                                ///< {"reason", "message"} instead
  std::optional<Json> fetch_failure;                                  ///< {"reason", "message"} of fetch pods
  bool fetches_end = true;                                            ///< false: they go on for ever
  std::map<std::string, Json> probes;                                 ///< pod name -> what its ops port answers
  std::string worker_mount_failure;                                   ///< the same, and the inspect pod's volumes come
  bool claim_goes = false;                                            ///< the claim is there for the inspect pod and then gone
  bool claim_exists = true, workers_start = true, workers_ready = true, collects = true;
  std::string mount_failure;                                          ///< what Events say of pods whose volumes do not come
  std::string kubelet_says = "FailedMount";                           ///< the reason of these Events
  std::string waiting_reason = "ImagePullBackOff";                    ///< of workers that do not start
  bool serves_monitors = false;                                       ///< the Prometheus operator is installed
  std::string broken_image;                                           ///< workers of it never get ready
  int devices = 8;                                                    ///< of node-a
  int drain_seconds = 0;                                              ///< how long a deleted pod lives on
  std::function<std::optional<k8s::ApiError>(const k8s::Request&)> refuse;
  Json taken;                                                         ///< status.groups when somebody took the status away, until it is written again: they were written
  std::function<void(Json&)> undoes;                                  ///< an admission webhook, of what is applied or patched; or a schema that drops a field
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
  void check_deletion(const Json& pod);
  std::string new_uid(const std::string& plural, const std::string& name);
  void collect();
  void run_pod(Json& pod);
  void bind(Json& pod);
  bool lacks_volume(const Json& pod) const;
  bool dead(const Json& pod) const;
  bool rests(const Json& pod) const;
  bool may_be_ready(const Json& pod) const { return workers_ready && k8s::string_at(pod, "/spec/containers/0/image") != broken_image; }

  Objects objects_;
  struct Told {
    size_t forgotten = 0;
    std::vector<Event> events;
  };
  std::map<std::string, Told> told_;                                  ///< by plural
  std::map<std::string, int> more_nodes_;                             ///< beside node-a, with their devices
  std::set<std::string> dead_nodes_;
  std::vector<Objects> history_;
  int64_t version_ = 100;
  std::map<std::string, int> made_;                                   ///< "plural/name" -> how often
  k8s::WallTime now_;
};

/// A ParallelModel with the server's defaults.
Json model_named(const std::string& name, int devices = 2, int replicas = 1);
/// Facts of a small GPT-2.
Json small_facts();
Settings settings();

}  // namespace pm::op::test
