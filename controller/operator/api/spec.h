// SPDX-License-Identifier: Apache-2.0
// Declares the typed spec of a ParallelModel. The API server has validated and defaulted it; what an older CRD let
// through is refused here again. The initialisers of the members are the defaults of the CRD; a test compares them.
#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "contract/ports.h"
#include "controller/operator/api/names.h"
#include "planner/plan.h"

namespace pm::op {

/// A model on the hub, which is downloaded to a PVC before any device is allocated.
struct HubSource {
  std::string id, revision = "main";              ///< ORG/NAME; branch, tag or commit
  std::string token_secret, token_key = "token";  ///< "": none
  bool own_claim = false;                         ///< the operator creates the PVC
  std::optional<int64_t> size;                    ///< bytes of the PVC
  std::string storage_class, access_mode;         ///< "": the default of the cluster; the mode that the plan needs
  bool retain = true;                             ///< the PVC outlives the ParallelModel
};

/// The volume of the checkpoint and the path inside it, "" for its root, without slashes at the ends. For a model on
/// the hub the volume is the PVC that caches the download.
struct Source {
  std::string claim, path;
  std::optional<HubSource> hub;
  std::string image;  ///< reference with a digest, of an image that is mounted; "": a PVC
  /// "sha256:..." of the image; "" for other sources.
  std::string digest() const { return image.empty() ? "" : image.substr(image.find('@') + 1); }
};

/// A LoRA adapter that is served beside the model. Its source is a PVC or an image.
struct Adapter {
  std::string name;  ///< in the API
  Source source;
};

/// The ConfigMap of a user's policy; key "" is the only key of the ConfigMap.
struct PolicyRef {
  std::string name, key;
};

/// The devices that a pod claims by a DeviceClass (dynamic resource allocation), one per rank.
struct DeviceClaim {
  std::string device_class;
  std::vector<std::string> selectors;  ///< CEL expressions, all of which a device fulfils
  std::string match_attribute;         ///< whose value the devices of a pod share; "": none
};

struct Devices {
  int count = 1;
  DeviceKind kind = DeviceKind::GPU;
  std::string resource;  ///< "" with a claim, and for CPU without one
  std::optional<DeviceClaim> claim;
  std::optional<int64_t> memory;  ///< bytes
  int per_node = 1;               ///< ranks of one pod, at most `count`; the last pod may hold fewer
};

struct Serving {
  std::optional<int64_t> max_sequence_length;
  int64_t max_concurrency = 64, max_queue = 256;
  std::vector<std::string> model_names;  ///< in the API; empty: the name of the ParallelModel
  std::string speculation;  ///< as the worker has it: "ngram" or "mtp"; "": only a draft model drafts, if there is one
  /// Returns whether the checkpoint's own module drafts, which takes memory.
  bool drafts_by_module() const { return speculation == "mtp"; }
};

struct FailurePolicy {
  int max_restarts = 6;
  std::chrono::seconds window{3600}, backoff_base{10}, backoff_max{300}, hang_timeout{60}, start{300};
};

/// The worker container. Parts that pods take unchanged stay JSON.
struct Worker {
  std::string image, pull_policy, service_account;
  Json pull_secrets = Json::array(), env = Json::array();
  std::map<std::string, std::string> labels, annotations;
  Json extra_resources = Json::object();
  std::vector<std::string> extra_args;
};

struct Scheduling {
  Json node_selector = Json::object(), tolerations = Json::array(), node_affinity = Json::object();
  std::string scheduler, priority_class, runtime_class, queue, queue_priority;
  bool pod_group = false;             ///< the scheduler places the pods of a replica as a PodGroup
  std::chrono::seconds timeout{300};  ///< how long a replica may have nodes for only some of its pods
};

/// The Service of the API, beside its Secrets.
struct Service {
  int port = http_port;
  std::string type = "ClusterIP", load_balancer_class, external_traffic_policy;  ///< "": not set
  std::map<std::string, std::string> annotations;
};

/// The Service of the endpoint picker that chooses a replica for each request to the InferencePool.
struct EndpointPicker {
  std::string name;
  int port = 9002;
  std::string failure_mode = "FailOpen";
};

/// A Gateway of the Gateway API that carries the model's requests.
struct GatewayRef {
  std::string name, ns, section;  ///< "": the namespace of the ParallelModel; every listener
};

/// Another ParallelModel that takes a share of the requests.
struct Canary {
  std::string name;
  int weight = 0;
};

/// The HTTPRoute from Gateways to the model and its canaries.
struct Route {
  std::vector<GatewayRef> gateways;
  std::vector<std::string> hostnames;  ///< empty: those of the listeners
  int weight = 100;                    ///< beside those of the canaries
  std::vector<Canary> canaries;
};

/// Who may reach a port: pods with all of these labels, in namespaces with all of these, or addresses.
struct NetworkPeer {
  std::map<std::string, std::string> namespace_labels, pod_labels;  ///< empty: its own namespace; every pod
  std::string cidr;                                                 ///< "": none
};

/// Who may reach a model, by a NetworkPolicy.
struct Isolation {
  std::vector<NetworkPeer> api_from;    ///< empty: everybody
  std::vector<NetworkPeer> admin_from;  ///< beside the controller
};

/// Limits of a rolling update.
struct Update {
  int max_surge = 1, max_unavailable = 1;
  std::chrono::seconds surge_timeout{30}, drain{60};
};

struct Spec {
  Source source;
  std::vector<Adapter> adapters;
  std::optional<Source> draft;  ///< the model that drafts for it, of a PVC or an image; nullopt: none does
  std::optional<PolicyRef> policy_ref;
  Devices devices;
  std::optional<Strategy> strategy;
  std::optional<int> tensor, pipeline, data;  ///< spec.parallelism.sizes
  std::optional<int> micro_batches;
  std::optional<Residency> offload_to;  ///< spec.parallelism.offload.to
  Objective objective = Objective::Latency;
  std::optional<DType> precision, kv_precision;
  Serving serving;
  int replicas = 1;
  std::optional<int64_t> cpu_milli, memory, shm;  ///< of one pod; memory does not include shared memory
  Scheduling scheduling;
  Service service;
  std::string api_key_secret, tls_secret;  ///< names of Secrets that pods mount and the operator never reads; "": none
  Update update;
  FailurePolicy failure;
  bool pod_monitor = false;                       ///< spec.metrics.podMonitor
  std::optional<EndpointPicker> endpoint_picker;  ///< spec.router.inferencePool.endpointPicker
  std::optional<Route> route;                     ///< spec.router.httpRoute
  std::optional<Isolation> isolation;             ///< spec.networkPolicy
  Worker worker;
};

/// The identity of the ParallelModel that owns the children.
struct Owner {
  k8s::Key key;
  std::string uid, restarted_at;  ///< the annotation, or ""
  int64_t generation = 0;
  Json reference;  ///< for ownerReferences
};

/// Parses an object. Throws std::invalid_argument that names the field.
Spec parse_spec(const Json& object);
Owner parse_owner(const Json& object);
/// Returns the names of the ParallelModels that take a share of this one's requests.
std::vector<std::string> canary_names(const Json& object);

/// Hashes the identity of a checkpoint, its adapters and its draft model: sources, restarted-at (a restart inspects the
/// files again), and the policy copy of a user ("": none).
std::string source_hash(const Spec&, const Owner&, const std::string& policy_copy);
/// Hashes all fields of a spec that a plan follows from.
std::string inputs_hash(const Spec&, const Owner&, const std::string& policy_copy);

}  // namespace pm::op
