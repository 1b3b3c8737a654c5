// The children of a ParallelModel as they should be: pure builders, one file per kind. Deterministic names, controller reference, no finalizer.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/layout.h"
#include "controller/operator/policy.h"
#include "controller/operator/snapshot.h"
#include "controller/operator/spec.h"
#include "planner/facts.h"
#include "planner/plan.h"

namespace pm::op {

/// The pod that reads config.json and tensor headers and leaves facts as its termination message. Takes no device.
Json inspect_pod(const Owner&, const Spec&, const Settings&, const std::optional<Policy>&);
/// The pod that downloads a model from the hub to its claim, at the commit that was planned. Takes no device.
Json fetch_pod(const Owner&, const Spec&, const Settings&, const std::string& commit);
/// The claim that we make for it: as large as the spec says, else a tenth and 1 GiB more than the tensors; ReadWriteMany where several pods will read it, else
/// ReadWriteOnce. Owned by the ParallelModel only when it is not to be retained.
Json cache_claim(const Owner&, const Spec&, const Facts&, int nodes_per_group);

/// What was decided for a checkpoint and a set of wishes, as stored in the plan ConfigMap.
struct StoredPlan {
  std::string name;                     ///< of the ConfigMap
  std::string hash;                     ///< of facts and plan
  std::string image;                    ///< of workers whose spec names none, fixed when the plan was made
  std::optional<Policy> policy;         ///< the user's own that it was made with
  std::string task, architecture;       ///< of the facts
  std::string revision;                 ///< of the facts: a commit on the hub, or ""
  Plan plan;
};
/// Immutable home of facts, plan and default worker image.
Json plan_config_map(const Owner&, const Spec&, const Facts&, const Plan&, const std::string& image, const std::optional<Policy>&);
/// Reads it back. Throws std::invalid_argument that says what is wrong with it.
StoredPlan stored_plan(const Json& config_map);
Facts stored_facts(const Json& config_map);

/// Everything that the pods of a group are rendered from.
struct PodInputs {
  const Owner& owner;
  const Spec& spec;
  const StoredPlan& stored;
  const Layout& layout;
  const Settings& settings;
};
/// The pod of one node of a group, its podHash label included.
Json group_pod(const PodInputs&, int group, int node_rank, int64_t incarnation, const std::string& pod_hash);
/// Names what pods are rendered from: every pod of a group without name, group and incarnation. Only a change of it replaces groups.
std::string pod_hash_of(const PodInputs&);

Json http_service(const Owner&, const Spec&);
/// For groups over several nodes. Headless, publishes pods that are not ready: ranks find each other by it before they can serve.
Json ranks_service(const Owner&);
/// One evicted pod takes its group, and the next eviction waits: minAvailable = replicas x nodes - max(1, maxUnavailable). Nothing where that protects no pod: Kubernetes
/// walks over the pods of each budget whenever one of them changes.
std::optional<Json> disruption_budget(const Owner&, const Spec&, int nodes_per_group);

/// The ops port of every pod, for Prometheus.
Json pod_monitor(const Owner&);

/// metadata of every child: name, namespace, labels, controller reference.
Json child_metadata(const Owner&, const std::string& name, const std::string& role);

}  // namespace pm::op
