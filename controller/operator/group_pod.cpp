// The pods of a group: one per node, one rank per device inside.
#include "controller/core/quantity.h"
#include "controller/operator/hash.h"
#include "controller/operator/pod_parts.h"

namespace pm::op {

namespace {

/// "1500m" or "2"
std::string cores(int64_t milli) { return milli % 1000 == 0 ? std::to_string(milli / 1000) : std::to_string(milli) + "m"; }

Json arguments(const PodInputs& in, int group, int node_rank, int64_t incarnation) {
  const Spec& spec = in.spec;
  Json args{"serve", "--plan", plan_file, "--model", model_folder(spec, in.stored.revision)};
  const auto add = [&](const char* name, const std::string& value) { args.push_back(name), args.push_back(value); };
  if (in.stored.policy) add("--policy", path_of(*in.stored.policy));
  add("--served-model-name", in.owner.key.name);
  if (spec.devices.kind == DeviceKind::GPU) add("--device", "cuda");
  add("--nodes", std::to_string(in.layout.nodes()));
  add("--node-rank", std::to_string(node_rank));
  add("--rendezvous", rendezvous_host(in.owner.key, group, incarnation) + ":" + std::to_string(rendezvous_port));
  add("--incarnation", std::to_string(incarnation));
  add("--port", std::to_string(http_port));
  add("--ops-port", std::to_string(ops_port));
  add("--max-sequence-length", std::to_string(in.stored.plan.sequence_length));
  add("--max-concurrency", std::to_string(spec.serving.max_concurrency));
  add("--max-queue", std::to_string(spec.serving.max_queue));
  add("--hang-timeout", std::to_string(spec.failure.hang_timeout.count()));
  add("--drain-seconds", std::to_string(spec.update.drain.count()));
  if (node_rank == 0 && !spec.api_key_secret.empty()) add("--api-keys-dir", api_keys_folder);
  if (node_rank == 0 && !spec.tls_secret.empty()) add("--tls-cert", tls_folder + "/tls.crt"), add("--tls-key", tls_folder + "/tls.key");
  for (const std::string& extra : spec.worker.extra_args) args.push_back(extra);
  return args;
}

Json resources(const PodInputs& in, int ranks) {
  Json requests{{"cpu", cores(in.layout.cpu_request_milli)}, {"memory", k8s::format_bytes(in.layout.memory)}};
  Json limits{{"memory", k8s::format_bytes(in.layout.memory)}};
  if (in.layout.cpu_limit_milli) limits["cpu"] = cores(*in.layout.cpu_limit_milli);
  if (!in.spec.devices.resource.empty()) limits[in.spec.devices.resource] = std::to_string(ranks);
  for (const auto& [name, quantity] : in.spec.worker.extra_resources.items()) limits[name] = quantity;
  return {{"requests", std::move(requests)}, {"limits", std::move(limits)}};
}

Json probe(const char* path, int period, int threshold, int timeout) {
  return {{"httpGet", {{"path", path}, {"port", "ops"}}}, {"periodSeconds", period}, {"failureThreshold", threshold}, {"timeoutSeconds", timeout}};
}

/// The Secrets of the API port, by name: the kubelet reads them and exchanges the files when they change, so no pod restarts for a new key.
void mount_secrets(Json& pod, const Spec& spec) {
  if (!spec.api_key_secret.empty())
    mount(pod, {{"name", "api-keys"}, {"secret", {{"secretName", spec.api_key_secret}, {"optional", false}}}}, api_keys_folder, true);
  if (!spec.tls_secret.empty()) {
    const auto item = [](const char* key) { return Json{{"key", key}, {"path", key}}; };
    mount(pod, {{"name", "tls"}, {"secret", {{"secretName", spec.tls_secret}, {"optional", false}, {"items", {item("tls.crt"), item("tls.key")}}}}}, tls_folder, true);
  }
}

Json render(const PodInputs& in, int group, int node_rank, int64_t incarnation) {
  const std::string name = group_pod_name(in.owner.key.name, group, node_rank, incarnation);
  Json pod = base_pod(in.owner, in.spec, in.settings, name, "worker", in.spec.worker.image.empty() ? in.stored.image : in.spec.worker.image);
  Json& labels = pod["metadata"]["labels"];
  labels[label::group] = std::to_string(group);
  labels[label::node_rank] = std::to_string(node_rank);
  labels[label::incarnation] = std::to_string(incarnation);
  pod["metadata"]["annotations"][annotation::nodes] = std::to_string(in.layout.nodes());
  pod["metadata"]["annotations"][annotation::plan] = in.stored.name;

  pod["spec"]["hostname"] = name;
  pod["spec"]["subdomain"] = ranks_service_name(in.owner.key.name);
  pod["spec"]["terminationGracePeriodSeconds"] = in.spec.update.drain.count() + 15;
  Json& container = pod["spec"]["containers"][0];
  container["args"] = arguments(in, group, node_rank, incarnation);
  container["ports"] = Json::array({{{"name", "ops"}, {"containerPort", ops_port}}});
  if (node_rank == 0) container["ports"].push_back({{"name", "http"}, {"containerPort", http_port}});
  container["readinessProbe"] = probe("/ready", 1, 2, 1);
  container["livenessProbe"] = probe("/live", 10, 3, 5);
  container["resources"] = resources(in, in.layout.ranks.at(node_rank));
  if (in.spec.devices.kind == DeviceKind::CPU) container["env"].push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  mount(pod, {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", k8s::format_bytes(in.layout.shm)}}}}, "/dev/shm", false);
  mount(pod, {{"name", "plan"}, {"configMap", {{"name", in.stored.name}}}}, plan_folder, true);
  if (in.stored.policy) mount_policy(pod, *in.stored.policy);
  if (node_rank == 0) mount_secrets(pod, in.spec);   // the others serve no API
  return pod;
}

/// A node for each pod of a group, where there are as many: devices.perNode says how much of a node a group wants. A wish only, so that nothing waits for it.
Json apart(const Json& labels) {
  Json own = Json::object();
  for (const std::string& name : {label::name, label::group, label::incarnation}) own[name] = labels.at(name);
  return {{"preferredDuringSchedulingIgnoredDuringExecution",
           Json::array({{{"weight", 100}, {"podAffinityTerm", {{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", {{"matchLabels", std::move(own)}}}}}}})}};
}

}  // namespace

std::string pod_hash_of(const PodInputs& in) {
  Json all = Json::array();
  for (int node = 0; node < in.layout.nodes(); ++node) {
    Json pod = render(in, 0, node, 0);
    pod["metadata"].erase("ownerReferences");   // a namesake's pods would be equal
    all.push_back(std::move(pod));
  }
  return hash_of(all);
}

Json group_pod(const PodInputs& in, int group, int node_rank, int64_t incarnation, const std::string& pod_hash) {
  Json pod = render(in, group, node_rank, incarnation);
  pod["metadata"]["labels"][label::pod_hash] = pod_hash;
  if (in.layout.nodes() > 1) pod["spec"]["affinity"]["podAntiAffinity"] = apart(pod["metadata"]["labels"]);     // not in the hash: no group that runs is moved for it
  return pod;
}

}  // namespace pm::op
