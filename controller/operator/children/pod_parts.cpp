// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/children/pod_parts.h"

#include "controller/operator/api/stable_hash.h"

namespace pm::op {

namespace {

constexpr int cache_group = 65532;

Json environment(const Spec& spec) {
  Json env = Json::array({{{"name", "HOME"}, {"value", "/tmp"}}});
  for (const Json& entry : spec.worker.env) {
    Json out{{"name", entry.value("name", "")}};
    if (entry.contains("secretKeyRef"))
      out["valueFrom"]["secretKeyRef"] = entry["secretKeyRef"];
    else if (entry.contains("configMapKeyRef"))
      out["valueFrom"]["configMapKeyRef"] = entry["configMapKeyRef"];
    else
      out["value"] = entry.value("value", "");
    env.push_back(std::move(out));
  }
  return env;
}

void schedule(Json& pod, const Spec& spec) {
  const Scheduling& wanted = spec.scheduling;
  if (!wanted.node_selector.empty()) pod["nodeSelector"] = wanted.node_selector;
  if (!wanted.node_affinity.empty()) pod["affinity"]["nodeAffinity"] = wanted.node_affinity;
  if (!wanted.tolerations.empty()) pod["tolerations"] = wanted.tolerations;
  if (!wanted.scheduler.empty()) pod["schedulerName"] = wanted.scheduler;
  if (!wanted.priority_class.empty()) pod["priorityClassName"] = wanted.priority_class;
  if (!wanted.runtime_class.empty()) pod["runtimeClassName"] = wanted.runtime_class;
}

Json volume_of(const Source& source, const std::string& name, bool read_only) {
  if (!source.image.empty())  // the runtime mounts it read-only
    return {{"name", name}, {"image", {{"reference", source.image}, {"pullPolicy", "IfNotPresent"}}}};
  return {{"name", name}, {"persistentVolumeClaim", {{"claimName", source.claim}, {"readOnly", read_only}}}};
}

/// Returns where the pod mounts the volume of the source, or "". A pod names each PVC once, whatever reads it.
std::string mounted(const Json& pod, const Source& source) {
  for (const Json& volume : pod["spec"]["volumes"]) {
    const bool same = source.image.empty() ? k8s::string_at(volume, "/persistentVolumeClaim/claimName") == source.claim
                                           : k8s::string_at(volume, "/image/reference") == source.image;
    if (!same) continue;
    for (const Json& seen : pod["spec"]["containers"][0]["volumeMounts"])
      if (seen["name"] == volume["name"]) return seen["mountPath"].get<std::string>();
  }
  return "";
}

}  // namespace

std::string image_of(const Spec& spec, const Settings& settings) {
  return spec.worker.image.empty() ? settings.worker_image : spec.worker.image;
}

std::string default_replica_image(const Spec& spec, const Settings& settings) {
  return spec.devices.kind == DeviceKind::GPU && !settings.worker_cuda_image.empty() ? settings.worker_cuda_image
                                                                                     : settings.worker_image;
}

std::string model_folder(const Spec& spec, const std::string& commit) {
  if (!spec.source.hub) return spec.source.path.empty() ? model_path : model_path + "/" + spec.source.path;
  std::string folder = spec.source.hub->id;  // huggingface_hub's cache: models--ORG--NAME/snapshots/COMMIT
  if (const size_t slash = folder.find('/'); slash != std::string::npos) folder.replace(slash, 1, "--");
  return model_path + "/models--" + folder + "/snapshots/" + commit;
}

std::string mount_token(Json& pod, const Spec& spec) {
  if (!spec.source.hub || spec.source.hub->token_secret.empty()) return "";
  const HubSource& hub = *spec.source.hub;
  mount(pod,
        {{"name", "hub-token"},
         {"secret",
          {{"secretName", hub.token_secret},
           {"optional", false},
           {"items", Json::array({{{"key", hub.token_key}, {"path", "token"}}})}}}},
        token_folder, true);
  return token_folder + "/token";
}

void mount(Json& pod, Json volume, const std::string& path, bool read_only) {
  Json seen{{"name", volume["name"]}, {"mountPath", path}};
  if (read_only) seen["readOnly"] = true;
  pod["spec"]["volumes"].push_back(std::move(volume));
  pod["spec"]["containers"][0]["volumeMounts"].push_back(std::move(seen));
}

std::string mount_source(Json& pod, const Source& source, const std::string& name, const std::string& folder) {
  std::string root = mounted(pod, source);
  if (root.empty()) {
    root = folder;
    mount(pod, volume_of(source, name, true), root, true);
  }
  return source.path.empty() ? root : root + "/" + source.path;
}

Json with_hash(Json child) {
  child["metadata"]["annotations"][annotation::wanted] = short_hash(child["spec"]);
  return child;
}

Json child_metadata(const Owner& owner, const std::string& name, const std::string& role) {
  return {{"name", name},
          {"namespace", owner.key.ns},
          {"labels",
           {{label::name, owner.key.name},
            {label::role, role},
            {"app.kubernetes.io/name", "parallelmodel"},
            {"app.kubernetes.io/instance", owner.key.name},
            {"app.kubernetes.io/component", role},
            {"app.kubernetes.io/managed-by", "parallelmodel-controller"}}},
          {"ownerReferences", Json::array({owner.reference})}};
}

Json base_pod(const Owner& owner, const Spec& spec, const Settings& settings, const std::string& name,
              const std::string& role, const std::string& image) {
  Json metadata = child_metadata(owner, name, role);
  if (!owner.restarted_at.empty()) metadata["annotations"][annotation::restarted_at] = owner.restarted_at;

  Json container{{"name", container_name},
                 {"image", image},
                 {"env", environment(spec)},
                 {"terminationMessagePolicy",
                  "FallbackToLogsOnError"},  // the last words of a worker that could not write its reason
                 {"securityContext",
                  {{"allowPrivilegeEscalation", false},
                   {"readOnlyRootFilesystem", settings.read_only_root},
                   {"capabilities", {{"drop", {"ALL"}}}}}}};
  if (!spec.worker.pull_policy.empty()) container["imagePullPolicy"] = spec.worker.pull_policy;

  Json pod{{"apiVersion", "v1"}, {"kind", "Pod"}, {"metadata", std::move(metadata)}};
  pod["spec"] = {{"restartPolicy", "Never"},
                 {"automountServiceAccountToken", false},
                 {"enableServiceLinks", false},
                 {"securityContext", {{"runAsNonRoot", true}, {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
                 {"containers", Json::array({std::move(container)})}};
  if (!spec.worker.service_account.empty()) pod["spec"]["serviceAccountName"] = spec.worker.service_account;
  if (!spec.worker.pull_secrets.empty()) pod["spec"]["imagePullSecrets"] = spec.worker.pull_secrets;
  schedule(pod["spec"], spec);
  const bool fetches = role == "fetch";
  if (!spec.source.hub || role != "inspect")
    mount(pod, volume_of(spec.source, "model", !fetches), model_path, !fetches);
  if (spec.source.hub && spec.source.hub->own_claim && role != "inspect") {  // a fresh volume belongs to root
    pod["spec"]["securityContext"]["fsGroup"] = cache_group;
    pod["spec"]["securityContext"]["fsGroupChangePolicy"] = "OnRootMismatch";
  }
  mount(pod, {{"name", "tmp"}, {"emptyDir", Json::object()}}, "/tmp", false);
  return pod;
}

}  // namespace pm::op
