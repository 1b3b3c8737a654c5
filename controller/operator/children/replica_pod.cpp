// SPDX-License-Identifier: Apache-2.0
// Builds the pods of a replica: one per node, with one rank per device.
#include "base/quantity.h"
#include "contract/ports.h"
#include "contract/worker_arguments.h"
#include "controller/operator/api/stable_hash.h"
#include "controller/operator/children/adapters.h"
#include "controller/operator/children/pod_parts.h"

namespace pm::op {

namespace {

/// Formats a CPU quantity: "1500m" or "2".
std::string cores(int64_t milli) {
  return milli % 1000 == 0 ? std::to_string(milli / 1000) : std::to_string(milli) + "m";
}

/// Folders inside the container of what is served beside the model.
struct Beside {
  std::vector<NamedAdapter> adapters;
  std::string draft;  ///< "": no model drafts
};

/// Mounts the adapters and the draft model, in the pod of every node: the process of each checks its arguments.
Beside mount_beside(Json& pod, const Spec& spec) {
  Beside out{mount_adapters(pod, spec), ""};
  if (spec.draft) out.draft = mount_source(pod, *spec.draft, "draft", draft_folder);
  return out;
}

Json arguments(const PodInputs& in, int replica, int node_rank, int64_t replica_generation, const Beside& beside) {
  const Spec& spec = in.spec;
  WorkerArguments out(subcommand::serve);
  out.add(flag::plan, plan_file).add(flag::model, model_folder(spec, in.stored.revision));
  if (in.stored.policy) out.add(flag::policy, path_of(*in.stored.policy));
  for (const std::string& name : spec.serving.model_names) out.add(flag::served_model_name, name);
  if (spec.serving.model_names.empty()) out.add(flag::served_model_name, in.owner.key.name);
  for (const NamedAdapter& adapter : beside.adapters) out.add(flag::adapter, adapter);
  if (!spec.serving.speculation.empty()) out.add(flag::speculation, spec.serving.speculation);
  if (!beside.draft.empty()) out.add(flag::draft_model, beside.draft);
  if (spec.devices.kind == DeviceKind::GPU) out.add(flag::device, "cuda");
  out.add(flag::nodes, in.layout.nodes());
  out.add(flag::node_rank, node_rank);
  out.add(flag::rendezvous, {rendezvous_host(in.owner.key, replica, replica_generation), rendezvous_port});
  out.add(flag::replica_generation, replica_generation);
  out.add(flag::port, http_port);
  out.add(flag::admin_port, admin_port);
  out.add(flag::max_sequence_length, in.stored.plan.sequence_length);
  out.add(flag::max_concurrency, spec.serving.max_concurrency);
  out.add(flag::max_queue, spec.serving.max_queue);
  out.add(flag::hang_timeout, spec.failure.hang_timeout);
  out.add(flag::drain, spec.update.drain);
  if (node_rank == 0 && !spec.api_key_secret.empty()) out.add(flag::api_keys_dir, api_keys_folder);
  if (node_rank == 0 && !spec.tls_secret.empty())
    out.add(flag::tls_cert, tls_folder + "/tls.crt").add(flag::tls_key, tls_folder + "/tls.key");
  for (const std::string& extra : spec.worker.extra_args) out.add(extra);
  return out.list();
}

Json resources(const PodInputs& in, int ranks) {
  Json requests{{"cpu", cores(in.layout.cpu_request_milli)}, {"memory", base::format_quantity(in.layout.memory)}};
  Json limits{{"memory", base::format_quantity(in.layout.memory)}};
  if (in.layout.cpu_limit_milli) limits["cpu"] = cores(*in.layout.cpu_limit_milli);
  if (!in.spec.devices.resource.empty()) limits[in.spec.devices.resource] = std::to_string(ranks);
  for (const auto& [name, quantity] : in.spec.worker.extra_resources.items()) limits[name] = quantity;
  return {{"requests", std::move(requests)}, {"limits", std::move(limits)}};
}

Json probe(const char* path, int period, int threshold, int timeout) {
  return {{"httpGet", {{"path", path}, {"port", "admin"}}},
          {"periodSeconds", period},
          {"failureThreshold", threshold},
          {"timeoutSeconds", timeout}};
}

/// Claims a device for each rank, by the ResourceClaimTemplate for their number.
void claim_devices(Json& pod, const PodInputs& in, int ranks) {
  if (!in.spec.devices.claim) return;
  pod["spec"]["resourceClaims"] = Json::array(
      {{{"name", devices_claim},
        {"resourceClaimTemplateName", claim_template_of(in.owner.key.name, *in.spec.devices.claim, ranks)}}});
  pod["spec"]["containers"][0]["resources"]["claims"] = Json::array({{{"name", devices_claim}}});
}

/// Mounts the Secrets of the API port by name. The kubelet updates the files when they change, so no pod restarts for a
/// new key.
void mount_secrets(Json& pod, const Spec& spec) {
  if (!spec.api_key_secret.empty())
    mount(pod, {{"name", "api-keys"}, {"secret", {{"secretName", spec.api_key_secret}, {"optional", false}}}},
          api_keys_folder, true);
  if (!spec.tls_secret.empty()) {
    const auto item = [](const char* key) { return Json{{"key", key}, {"path", key}}; };
    mount(pod,
          {{"name", "tls"},
           {"secret",
            {{"secretName", spec.tls_secret}, {"optional", false}, {"items", {item("tls.crt"), item("tls.key")}}}}},
          tls_folder, true);
  }
}

Json render(const PodInputs& in, int replica, int node_rank, int64_t replica_generation) {
  const std::string name = replica_pod_name(in.owner.key.name, replica, node_rank, replica_generation);
  Json pod = base_pod(in.owner, in.spec, in.settings, name, "worker",
                      in.spec.worker.image.empty() ? in.stored.image : in.spec.worker.image);
  Json &labels = pod["metadata"]["labels"], &annotations = pod["metadata"]["annotations"];
  for (const auto& [key, value] : in.spec.worker.labels) labels.emplace(key, value);
  for (const auto& [key, value] : in.spec.worker.annotations) annotations.emplace(key, value);
  labels[label::replica] = std::to_string(replica);
  labels[label::node_rank] = std::to_string(node_rank);
  labels[label::replica_generation] = std::to_string(replica_generation);
  annotations[annotation::nodes] = std::to_string(in.layout.nodes());
  annotations[annotation::plan] = in.stored.name;
  enter_queue(pod, in.spec, group_name(in.owner.key.name, replica, replica_generation), in.layout.nodes());

  pod["spec"]["hostname"] = name;
  pod["spec"]["subdomain"] = ranks_service_name(in.owner.key.name);
  pod["spec"]["terminationGracePeriodSeconds"] = in.spec.update.drain.count() + 15;
  Json& container = pod["spec"]["containers"][0];
  container["args"] = arguments(in, replica, node_rank, replica_generation, mount_beside(pod, in.spec));
  container["ports"] = Json::array({{{"name", "admin"}, {"containerPort", admin_port}}});
  if (node_rank == 0) container["ports"].push_back({{"name", "http"}, {"containerPort", http_port}});
  container["readinessProbe"] = probe("/ready", 1, 2, 1);
  container["livenessProbe"] = probe("/live", 10, 3, 5);
  container["resources"] = resources(in, in.layout.ranks.at(node_rank));
  claim_devices(pod, in, in.layout.ranks.at(node_rank));
  if (in.spec.devices.kind == DeviceKind::CPU)
    container["env"].push_back({{"name", "NVIDIA_VISIBLE_DEVICES"}, {"value", "void"}});
  mount(pod,
        {{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}, {"sizeLimit", base::format_quantity(in.layout.shm)}}}},
        "/dev/shm", false);
  mount(pod, {{"name", "plan"}, {"configMap", {{"name", in.stored.name}}}}, plan_folder, true);
  if (in.stored.policy) mount_policy(pod, *in.stored.policy);
  if (node_rank == 0) mount_secrets(pod, in.spec);  // only node-rank 0 serves the API
  return pod;
}

constexpr const char *hostname_key = "kubernetes.io/hostname", *zone_key = "topology.kubernetes.io/zone";

/// Prefers, or avoids as an anti-affinity, the nodes or zones of the other pods of the replica.
Json near_own_replica(const Json& labels, const char* topology_key) {
  Json own = Json::object();
  for (const std::string& name : {label::name, label::replica, label::replica_generation}) own[name] = labels.at(name);
  return {{"preferredDuringSchedulingIgnoredDuringExecution",
           Json::array({{{"weight", 100},
                         {"podAffinityTerm",
                          {{"topologyKey", topology_key}, {"labelSelector", {{"matchLabels", std::move(own)}}}}}}})}};
}

/// Spreads the first pods of replicas over zones and nodes.
Json spread_over(const Json& labels) {
  Json out = Json::array(), firsts = Json::object();
  for (const std::string& name : {label::name, label::node_rank}) firsts[name] = labels.at(name);
  for (const char* key : {zone_key, hostname_key})
    out.push_back({{"topologyKey", key},
                   {"maxSkew", 1},
                   {"whenUnsatisfiable", "ScheduleAnyway"},
                   {"labelSelector", {{"matchLabels", firsts}}}});
  return out;
}

/// Asks for a failure of a node or zone to end as few replicas as possible, and for the pods of a replica to be in one
/// zone, each on a node of its own, for devices.perNode says how much of a node it uses. No pod waits for it.
void place(Json& pod, int nodes) {
  const Json labels = pod["metadata"]["labels"];
  const bool first = labels.at(label::node_rank) == "0";
  if (first) pod["spec"]["topologySpreadConstraints"] = spread_over(labels);
  if (nodes == 1) return;
  pod["spec"]["affinity"]["podAntiAffinity"] = near_own_replica(labels, hostname_key);
  if (!first) pod["spec"]["affinity"]["podAffinity"] = near_own_replica(labels, zone_key);
}

}  // namespace

std::string pod_hash_of(const PodInputs& in) {
  Json all = Json::array();
  for (int node = 0; node < in.layout.nodes(); ++node) {
    Json pod = render(in, 0, node, 0);
    pod["metadata"].erase("ownerReferences");  // pods of a later ParallelModel of this name have the same hash
    all.push_back(std::move(pod));
  }
  return short_hash(all);
}

Json replica_pod(const PodInputs& in, int replica, int node_rank, int64_t replica_generation,
                 const std::string& pod_hash) {
  Json pod = render(in, replica, node_rank, replica_generation);
  pod["metadata"]["labels"][label::pod_hash] = pod_hash;
  // Not part of the hash: it replaces no running replica.
  place(pod, in.layout.nodes());
  if (in.spec.scheduling.pod_group && in.layout.nodes() > 1)
    pod["spec"]["schedulingGroup"]["podGroupName"] = group_name(in.owner.key.name, replica, replica_generation);
  return pod;
}

}  // namespace pm::op
