// A ParallelModel's spec, typed. The API server has validated and defaulted it; what an older schema let through is refused here again.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/names.h"
#include "planner/plan.h"

namespace pm::op {

/// A model on the hub, downloaded to a claim before any device is taken.
struct HubSource {
  std::string id, revision = "main";    ///< ORG/NAME; branch, tag or commit
  std::string token_secret, token_key = "token";   ///< "": none
  bool own_claim = false;               ///< the claim is ours to make
  std::optional<int64_t> size;          ///< bytes of it
  std::string storage_class, access_mode;   ///< "": the cluster's; what the plan needs
  bool retain = true;                   ///< it outlives the ParallelModel
};

/// Path inside the claim, "" for its root, without slashes at the ends; of a model on the hub the claim that caches it.
struct Source {
  std::string claim, path;
  std::optional<HubSource> hub;
};

/// A user's own policy; key "": the only one of the ConfigMap.
struct PolicyRef { std::string name, key; };

struct Devices {
  int count = 1;
  DeviceKind kind = DeviceKind::GPU;
  std::string resource;                 ///< "" for CPU without one
  std::optional<int64_t> memory;        ///< bytes
  int per_node = 1;                     ///< ranks of one pod, at most `count`; the last pod may hold fewer
};

struct Serving { std::optional<int64_t> max_sequence_length; int64_t max_concurrency = 64, max_queue = 256; };

struct FailurePolicy {
  int max_restarts = 6;
  std::chrono::seconds window{3600}, backoff_base{10}, backoff_max{300}, hang_timeout{60}, start{300};
};

/// Parts that go into pods as they are stay JSON: tolerations, env, pull secrets.
struct Worker {
  std::string image, pull_policy, service_account;
  Json pull_secrets = Json::array(), env = Json::array();
  std::map<std::string, std::string> labels, annotations;
  Json extra_resources = Json::object();
  std::vector<std::string> extra_args;
};

struct Scheduling {
  Json node_selector = Json::object(), tolerations = Json::array(), node_affinity = Json::object();
  std::string scheduler, priority_class, runtime_class;
  std::chrono::seconds timeout{300};    ///< of a group of which some pods have a node and others have none
};

/// How groups of a former spec are replaced.
struct Update {
  int max_surge = 1, max_unavailable = 1;
  std::chrono::seconds surge_timeout{30}, drain{60};
};

struct Spec {
  Source source;
  std::optional<PolicyRef> policy_ref;
  Devices devices;
  std::optional<Strategy> strategy;
  std::optional<int> tensor, pipeline, data;       ///< spec.parallelism.sizes
  std::optional<int> micro_batches;
  std::optional<Residency> offload_to;             ///< spec.parallelism.offload.to
  Objective objective = Objective::Latency;
  std::optional<DType> precision;
  Serving serving;
  int replicas = 1;
  std::optional<int64_t> cpu_milli, memory, shm;   ///< of one pod; memory without shared memory
  Scheduling scheduling;
  int service_port = 8000;
  std::string service_type = "ClusterIP";
  std::string api_key_secret, tls_secret;          ///< names of Secrets, which pods mount and we never read; "": none
  Update update;
  FailurePolicy failure;
  bool pod_monitor = false;             ///< spec.metrics.podMonitor
  Worker worker;
};

/// What identifies the object whose children are made.
struct Owner {
  k8s::Key key;
  std::string uid, restarted_at;        ///< the annotation, or ""
  int64_t generation = 0;
  Json reference;                       ///< for ownerReferences
};

/// Reads an object. Throws std::invalid_argument that names the field.
Spec spec_of(const Json& object);
Owner owner_of(const Json& object);

/// Names what facts are of: source, restarted-at (a restart looks at the files again), and the copy of a user's policy ("": none).
std::string source_hash(const Spec&, const Owner&, const std::string& policy_copy);
/// Names everything of a spec that a plan follows from.
std::string inputs_hash(const Spec&, const Owner&, const std::string& policy_copy);

}  // namespace pm::op
