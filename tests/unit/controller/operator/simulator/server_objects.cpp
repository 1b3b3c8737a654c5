// SPDX-License-Identifier: Apache-2.0
#include "server_objects.h"

#include <cctype>
#include <cstdio>

namespace pm::op::test {

using k8s::Json;

namespace {

const char* const moment = "2026-01-01T00:00:07Z";

std::string uuid(const std::string& of, int number) {
  char text[48];
  std::snprintf(text, sizeof text, "7f3c9a52-%04x-4b7e-9d1a-%012zx", static_cast<unsigned>(number) & 0xffff,
                std::hash<std::string>()(of) & 0xffffffffffff);
  return text;
}

/// Replaces every short uid such as "uid-pods/m-0-0-1-1".
std::string with_uuids(const std::string& text, int number) {
  std::string out;
  const std::string mark = "\"uid-";
  size_t at = 0;
  for (size_t found = text.find(mark); found != std::string::npos; found = text.find(mark, at)) {
    const size_t begin = found + mark.size(), end = text.find('"', begin);
    out.append(text, at, found - at).append("\"").append(uuid(text.substr(begin, end - begin), number));
    at = end;
  }
  return out.append(text, at);
}

/// Returns the fieldsV1 that owns the whole value.
Json fields_of(const Json& value) {
  Json out = Json::object();
  if (value.is_object()) {
    for (const auto& [key, inner] : value.items()) out["f:" + key] = fields_of(inner);
  } else if (value.is_array()) {
    for (const Json& one : value) {
      if (!one.is_object()) continue;
      for (const char* key : {"name", "type", "port", "uid"}) {
        if (!one.contains(key)) continue;
        Json& own = out["k:" + Json{{key, one[key]}}.dump()] = fields_of(one);
        own["."] = Json::object();
        break;
      }
    }
  }
  return out;
}

Json manager(const char* name, const Json& fields, const char* subresource = "") {
  Json out{{"manager", name}, {"operation", "Update"},    {"apiVersion", "v1"},
           {"time", moment},  {"fieldsType", "FieldsV1"}, {"fieldsV1", fields_of(fields)}};
  if (*subresource) out["subresource"] = subresource;
  return out;
}

void fill_probe(Json& probe) { probe["successThreshold"] = 1, probe["httpGet"]["scheme"] = "HTTP"; }

void fill_pod(Json& pod) {
  Json& spec = pod["spec"];
  spec.update({{"dnsPolicy", "ClusterFirst"},
               {"priority", 0},
               {"preemptionPolicy", "PreemptLowerPriority"},
               {"serviceAccount", "default"},
               {"serviceAccountName", "default"},
               {"schedulerName", "default-scheduler"}});
  for (const char* key : {"node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"}) {
    spec["tolerations"].push_back(
        {{"key", key}, {"operator", "Exists"}, {"effect", "NoExecute"}, {"tolerationSeconds", 300}});
  }
  Json& container = spec["containers"][0];
  container.update({{"terminationMessagePath", "/dev/termination-log"}, {"imagePullPolicy", "IfNotPresent"}});
  for (const char* probe : {"readinessProbe", "livenessProbe"}) {
    if (container.contains(probe)) fill_probe(container[probe]);
  }
  Json& status = pod["status"];
  Json conditions = status.value("conditions", Json::array());
  for (const char* type : {"PodReadyToStartContainers", "Initialized", "ContainersReady"})
    conditions.push_back({{"type", type}, {"status", "True"}});
  for (Json& condition : conditions)
    condition.update({{"lastProbeTime", nullptr}, {"lastTransitionTime", moment}, {"observedGeneration", 1}});
  status.update({{"conditions", conditions},
                 {"observedGeneration", 1},
                 {"hostIP", "192.168.17.4"},
                 {"hostIPs", Json::array({{{"ip", "192.168.17.4"}}})},
                 {"podIPs", Json::array({{{"ip", "10.0.0.1"}}})},
                 {"startTime", moment},
                 {"qosClass", "Burstable"}});
  Json mounts = Json::array();
  for (const Json& mount : container["volumeMounts"])
    mounts.push_back({{"name", mount["name"]},
                      {"mountPath", mount["mountPath"]},
                      {"readOnly", true},
                      {"recursiveReadOnly", "Disabled"}});
  for (Json& one : status["containerStatuses"]) {
    one.update({{"ready", true},
                {"started", true},
                {"restartCount", 0},
                {"lastState", Json::object()},
                {"image", "registry.example.com/parallelmodel-worker:1"},
                {"resources", container["resources"]},
                {"imageID", "registry.example.com/parallelmodel-worker@sha256:" + std::string(64, 'a')},
                {"containerID", "containerd://" + std::string(64, 'b')},
                {"volumeMounts", mounts},
                {"allocatedResources", container["resources"]["requests"]},
                {"user", {{"linux", {{"uid", 65532}, {"gid", 65532}, {"supplementalGroups", {65532}}}}}}});
  }
}

void fill_service(Json& service) {
  const std::string address = k8s::string_at(service, "/spec/clusterIP").empty() ? "10.96.11.7" : "None";
  service["spec"].update({{"clusterIP", address},
                          {"clusterIPs", {address}},
                          {"ipFamilies", {"IPv4"}},
                          {"ipFamilyPolicy", "SingleStack"},
                          {"internalTrafficPolicy", "Cluster"},
                          {"sessionAffinity", "None"},
                          {"type", "ClusterIP"}});
  service["status"] = {{"loadBalancer", Json::object()}};
}

void fill_budget(Json& budget) {
  budget["status"] = {{"currentHealthy", 1},
                      {"desiredHealthy", 0},
                      {"disruptionsAllowed", 1},
                      {"expectedPods", 1},
                      {"observedGeneration", 1},
                      {"conditions", Json::array({{{"type", "DisruptionAllowed"},
                                                   {"status", "True"},
                                                   {"reason", "SufficientPods"},
                                                   {"message", ""},
                                                   {"lastTransitionTime", moment},
                                                   {"observedGeneration", 1}}})}};
}

}  // namespace

Json with_server_fields(const std::string& plural, Json object, int number) {
  object["metadata"].erase("managedFields");
  Json& metadata = object["metadata"];
  metadata.update({{"creationTimestamp", moment}, {"generation", 1}}, true);
  Json written = object;
  for (const char* key : {"uid", "resourceVersion", "creationTimestamp", "generation", "name", "namespace"})
    written["metadata"].erase(key);
  written.erase("status");
  if (plural == "pods") fill_pod(object);
  if (plural == "services") fill_service(object);
  if (plural == "poddisruptionbudgets") fill_budget(object);
  object["metadata"]["managedFields"] = Json::array({manager("parallelmodel-controller", written)});
  if (object.contains("status"))
    object["metadata"]["managedFields"].push_back(manager(
        plural == "parallelmodels" ? "parallelmodel-controller" : "kubelet", {{"status", object["status"]}}, "status"));
  return Json::parse(with_uuids(object.dump(), number));
}

Json server_node(const std::string& name) {
  Json images = Json::array(), conditions = Json::array(),
       labels{{"nvidia.com/gpu.memory", "81920"},
              {"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"},
              {"kubernetes.io/hostname", name}};
  for (int i = 0; i < 50; ++i)
    images.push_back({{"names",
                       {"registry.example.com/image@sha256:" + std::string(64, static_cast<char>('a' + i % 26)),
                        "registry.example.com/image:" + std::to_string(i)}},
                      {"sizeBytes", 123456789 + i}});
  for (const char* type : {"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"}) {
    conditions.push_back({{"type", type},
                          {"status", type == std::string("Ready") ? "True" : "False"},
                          {"reason", "KubeletHas"},
                          {"message", "kubelet has what it needs"},
                          {"lastHeartbeatTime", moment},
                          {"lastTransitionTime", moment}});
  }
  for (int i = 0; i < 25; ++i) labels["feature.node.kubernetes.io/cpu-cpuid.FEATURE" + std::to_string(i)] = "true";
  const Json room{
      {"cpu", "64"},          {"memory", "512Gi"},    {"pods", "200"},        {"ephemeral-storage", "900Gi"},
      {"hugepages-1Gi", "0"}, {"hugepages-2Mi", "0"}, {"nvidia.com/gpu", "8"}};
  Json node{{"apiVersion", "v1"},
            {"kind", "Node"},
            {"metadata",
             {{"name", name},
              {"uid", "uid-" + name},
              {"resourceVersion", "7"},
              {"labels", labels},
              {"annotations", {{"volumes.kubernetes.io/controller-managed-attach-detach", "true"}}}}},
            {"spec", {{"podCIDR", "10.244.0.0/24"}, {"providerID", "cloud://zone/" + name}}},
            {"status",
             {{"allocatable", room},
              {"capacity", room},
              {"conditions", conditions},
              {"images", images},
              {"nodeInfo", {{"kernelVersion", "6.1.0"}, {"osImage", "Debian GNU/Linux 12 (bookworm)"}}}}}};
  return node;
}

}  // namespace pm::op::test
