// SPDX-License-Identifier: Apache-2.0
// Declares the builders of the desired children of a ParallelModel. They are pure, with one file per kind. Children
// have deterministic names, a controller reference and no finalizer.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/api/spec.h"
#include "controller/operator/children/pod_layout.h"
#include "controller/operator/children/user_policy.h"
#include "controller/operator/observed/snapshot.h"
#include "planner/model_metadata.h"
#include "planner/plan.h"

namespace pm::op {

/// Builds the pod that reads config.json and tensor headers and writes model metadata to its termination message. It
/// takes no device.
Json inspect_pod(const Owner&, const Spec&, const Settings&, const std::optional<Policy>&);
/// Builds the pod that downloads a model from the hub to its PVC, at the planned commit. It takes no device.
Json fetch_pod(const Owner&, const Spec&, const Settings&, const std::string& commit);
/// Builds the PVC of the download. Its size is that of the spec, else 1.1 x the tensors + 1 GiB. It is ReadWriteMany
/// where several pods read it, else ReadWriteOnce. The ParallelModel owns it unless it is to be retained.
Json cache_claim(const Owner&, const Spec&, const ModelMetadata&, int nodes_per_replica);

/// The plan for a checkpoint and the constraints of a spec, as stored in the plan ConfigMap.
struct StoredPlan {
  std::string name;                ///< of the ConfigMap
  std::string hash;                ///< of model metadata and plan
  std::string image;               ///< of workers whose spec names none, fixed when the plan was made
  std::optional<Policy> policy;    ///< the user's own that it was made with
  std::string task, architecture;  ///< of the model metadata
  std::string revision;            ///< of the model metadata: a commit on the hub, or ""
  Plan plan;
};
/// Builds the immutable ConfigMap of model metadata, plan and default worker image.
Json plan_config_map(const Owner&, const Spec&, const ModelMetadata&, const Plan&, const std::string& image,
                     const std::optional<Policy>&);
/// Parses the ConfigMap. Throws std::invalid_argument that says what is wrong with it.
StoredPlan stored_plan(const Json& config_map);
ModelMetadata stored_metadata(const Json& config_map);

/// The inputs from which the pods of a replica are rendered.
struct PodInputs {
  const Owner& owner;
  const Spec& spec;
  const StoredPlan& stored;
  const PodLayout& layout;
  const Settings& settings;
};
/// Builds the pod of one node of a replica, with its pod-hash label.
Json replica_pod(const PodInputs&, int replica, int node_rank, int64_t replica_generation, const std::string& pod_hash);
/// Builds the ResourceClaimTemplates of the pods of a replica, one per number of ranks of a pod; none without
/// devices.claim. Their spec is immutable, so their names hold a hash of it.
std::vector<Json> claim_templates(const Owner&, const Spec&, const PodLayout&);
/// Returns the name of the ResourceClaimTemplate of a pod with so many ranks.
std::string claim_template_of(const std::string& model, const DeviceClaim&, int ranks);
/// Hashes every pod of a replica without name, replica index and generation. Only a change of this hash replaces
/// replicas.
std::string pod_hash_of(const PodInputs&);

Json http_service(const Owner&, const Spec&);
/// Builds the headless Service for replicas over several nodes. It publishes pods that are not ready, so that ranks
/// resolve each other before they can serve.
Json ranks_service(const Owner&);
/// Builds the PodDisruptionBudget. With `protects` no pod that serves may be evicted, for its replica moves first: see
/// protects_from_eviction(). Else minAvailable = replicas x nodes - max(1, maxUnavailable): one evicted pod ends its
/// replica, and the next eviction waits. Returns nullopt where the budget would protect no pod, for Kubernetes walks
/// over the pods of each budget whenever one of them changes.
std::optional<Json> disruption_budget(const Owner&, const Spec&, int nodes_per_replica, bool protects);

/// Builds the PodMonitor of the admin port of every pod.
Json pod_monitor(const Owner&);
/// Builds the InferencePool of the pods that take requests, one of each replica.
Json inference_pool(const Owner&, const Spec&);
/// Builds the HTTPRoute to the model and to those of its canaries that serve.
Json http_route(const Owner&, const Spec&, const Snapshot&);
/// Builds the PodGroup of the pods of a replica, by which the scheduler places all or none. The pods own it: the
/// garbage collector removes it with the last of them. Its apiVersion is the newest; callers may set an older one.
Json pod_group(const std::string& name, const std::vector<k8s::ObjectPtr>& pods);
/// Builds the NetworkPolicy of the replicas: ranks reach each other, the controller the admin port.
Json network_policy(const Owner&, const Spec&, const Settings&);
/// Returns what Gateways have against a live HTTPRoute: the conditions Accepted and ResolvedRefs that are False; "" if
/// none is.
std::string gateway_complaint(const Json& route);
/// Returns why a canary takes no requests; "" if it takes its share.
std::string no_share(const Canary&, const Snapshot&);

/// Builds the metadata of a child: name, namespace, labels, controller reference.
Json child_metadata(const Owner&, const std::string& name, const std::string& role);
/// Returns the child with a hash of its spec as annotation, so that parts which the spec drops are removed.
Json with_hash(Json child);

}  // namespace pm::op
