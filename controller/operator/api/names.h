// SPDX-License-Identifier: Apache-2.0
// Declares the labels, annotations, ports, paths and object names of the operator.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "controller/core/object.h"
#include "controller/core/request.h"

namespace pm::op {

using k8s::Json;

inline const k8s::Resource parallel_models_resource{"parallelmodel.dev", "v1alpha1", "parallelmodels", "ParallelModel"};
inline const k8s::Resource network_policies_resource{"networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"};
/// Kinds whose CRDs may not be installed: of the Prometheus operator, the Gateway API and its inference extension.
inline const k8s::Resource pod_monitors_resource{"monitoring.coreos.com", "v1", "podmonitors", "PodMonitor"};
inline const k8s::Resource http_routes_resource{"gateway.networking.k8s.io", "v1", "httproutes", "HTTPRoute"};
inline const k8s::Resource inference_pools_resource{"inference.networking.k8s.io", "v1", "inferencepools",
                                                    "InferencePool"};

/// Dynamic resource allocation, which Kubernetes serves from 1.34 on.
inline const k8s::Resource device_classes_resource{"resource.k8s.io", "v1", "deviceclasses", "DeviceClass", false};
inline const k8s::Resource resource_slices_resource{"resource.k8s.io", "v1", "resourceslices", "ResourceSlice", false};
inline const k8s::Resource claim_templates_resource{"resource.k8s.io", "v1", "resourceclaimtemplates",
                                                    "ResourceClaimTemplate"};

/// Kubernetes' own groups of pods, newest version first: 1.37 serves v1beta1, 1.36 v1alpha2, both behind a feature
/// gate. The fields that are used are the same in both.
inline const std::array<k8s::Resource, 2> pod_group_resources{
    {{"scheduling.k8s.io", "v1beta1", "podgroups", "PodGroup"},
     {"scheduling.k8s.io", "v1alpha2", "podgroups", "PodGroup"}}};

namespace label {
inline const std::string name = "parallelmodel.dev/name";
inline const std::string role = "parallelmodel.dev/role";  ///< worker, inspect, fetch, cache, plan, policy, service,
                                                           ///< ranks, budget, monitor, pool, route, network,
                                                           ///< devices
inline const std::string replica = "parallelmodel.dev/replica";
inline const std::string node_rank = "parallelmodel.dev/node-rank";
inline const std::string replica_generation = "parallelmodel.dev/replica-generation";
inline const std::string pod_hash = "parallelmodel.dev/pod-hash";
inline const std::string queue_name = "kueue.x-k8s.io/queue-name",
                         queue_group = "kueue.x-k8s.io/pod-group-name";  ///< of Kueue
}  // namespace label

namespace annotation {
inline const std::string restarted_at =
    "parallelmodel.dev/restarted-at";  ///< set by users; every change restarts the replicas
inline const std::string source = "parallelmodel.dev/source-hash";     ///< the checkpoint that model metadata describes
inline const std::string inputs = "parallelmodel.dev/inputs-hash";     ///< the spec fields that a plan was made for
inline const std::string generation = "parallelmodel.dev/generation";  ///< of the spec that an inspect pod was made for
inline const std::string nodes = "parallelmodel.dev/nodes";            ///< pods of one generation of a replica
inline const std::string fetched =
    "parallelmodel.dev/fetched";  ///< on a plan: the source hash of the checkpoint whose bytes the PVC holds
inline const std::string fetch_seconds =
    "parallelmodel.dev/fetch-seconds";  ///< beside it: seconds from the creation of the fetch pod to the end of the
                                        ///< download
inline const std::string wanted =
    "parallelmodel.dev/spec-hash";  ///< of what the spec wants of a child, so that the removal of a part is noticed
inline const std::string plan = "parallelmodel.dev/plan";  ///< name of the ConfigMap that a pod mounts
inline const std::string policy =
    "parallelmodel.dev/policy";  ///< name of the copy of a user's policy that a pod mounts, or a plan was made with
}  // namespace annotation

inline const std::string container_name = "worker";
inline const std::string devices_claim = "devices";  ///< of a pod, and the request in it
inline const std::string model_path = "/model", policy_folder = "/policy", plan_folder = "/etc/parallelmodel",
                         plan_file = "/etc/parallelmodel/plan.json", api_keys_folder = "/etc/parallelmodel-keys",
                         tls_folder = "/etc/parallelmodel-tls", token_folder = "/etc/parallelmodel-hub",
                         adapters_folder = "/adapters", draft_folder = "/draft";

std::string inspect_pod_name(const std::string& model, int64_t generation);
std::string fetch_pod_name(const std::string& model);
std::string cache_claim_name(const std::string& model);
std::string plan_name(const std::string& model, const std::string& plan_hash);
std::string policy_name(const std::string& model, const std::string& contents_hash);
std::string replica_pod_name(const std::string& model, int replica, int node_rank, int64_t replica_generation);
std::string claim_template_name(const std::string& model, const std::string& contents_hash);
/// The name of the pods of a replica as one group: of a queue, and of the scheduler.
std::string group_name(const std::string& model, int replica, int64_t replica_generation);
std::string ranks_service_name(const std::string& model);
/// The host name at which node-rank 0 of a replica waits for the others; the headless Service resolves it.
std::string rendezvous_host(const k8s::Key& model, int replica, int64_t replica_generation);
/// The content of status.selector: it selects one pod per replica.
std::string scale_selector(const std::string& model);
/// "http://NAME.NAMESPACE.svc:PORT", or https.
std::string endpoint_of(const k8s::Key& model, int port, bool tls);

}  // namespace pm::op
