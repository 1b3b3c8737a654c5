// SPDX-License-Identifier: Apache-2.0
#include "fake_cluster.h"

#include <algorithm>
#include <map>
#include <set>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "fake_pods.h"

namespace pm::op::test {

using k8s::Key;

namespace {

int devices_of(const Json& pod) {
  const int claimed = static_cast<int>(integer_at(pod, "/status/claimed").value_or(0));
  return claimed + std::stoi(pod["spec"]["containers"][0]["resources"]["limits"].value("nvidia.com/gpu", "0"));
}

}  // namespace

void FakeCluster::set_node_ready(const std::string& name, bool ready) {
  Json node = *find("nodes", name);
  node["status"]["conditions"][0]["status"] = ready ? "True" : "Unknown";
  store("nodes", std::move(node));
  if (ready) {
    dead_nodes_.erase(name);
    return;
  }
  dead_nodes_.insert(name);
  for (const auto& pod : list("pods")) {
    if (k8s::string_at(*pod, "/spec/nodeName") != name) continue;
    Json unready = *pod;
    set_condition(unready, "Ready", false, now_);
    store("pods", std::move(unready));
  }
}

void FakeCluster::publish_devices(int count, const std::string& memory, const std::string& device_class) {
  serves_devices = true;
  Json devices = Json::array();
  for (int i = 0; i < count; ++i) {
    devices.push_back({{"name", "gpu-" + std::to_string(i)},
                       {"attributes", {{"productName", {{"string", "NVIDIA H100 80GB HBM3"}}}}},
                       {"capacity", {{"memory", {{"value", memory}}}}}});
  }
  const Json selector{{"cel", {{"expression", "device.driver == \"gpu.example.com\""}}}};
  put("deviceclasses",
      {{"metadata", {{"name", device_class}}},
       {"spec", {{"selectors", Json::array({selector})}, {"extendedResourceName", "nvidia.com/gpu"}}}});
  put("resourceslices", {{"metadata", {{"name", "node-a-" + device_class}}},
                         {"spec",
                          {{"driver", "gpu.example.com"},
                           {"nodeName", "node-a"},
                           {"pool", {{"name", "node-a"}, {"generation", 1}, {"resourceSliceCount", 1}}},
                           {"devices", std::move(devices)}}}});
}

void FakeCluster::cordon(const std::string& name, bool unschedulable) {
  Json node = *find("nodes", name);
  node["spec"]["unschedulable"] = unschedulable;
  store("nodes", std::move(node));
}

void FakeCluster::evict(const std::string& name, const std::string& condition, const std::string& reason) {
  change_pod(name, [&](Json& pod) { set_condition(pod, condition.c_str(), true, now_, reason, "evicting"); });
  delete_pod(name);
}

bool FakeCluster::dead(const Json& pod) const { return dead_nodes_.contains(k8s::string_at(pod, "/spec/nodeName")); }

std::string FakeCluster::policy_of(const Json& pod) const {
  for (const Json& volume : pod["spec"]["volumes"]) {
    if (volume["name"] != "policy") continue;
    const Json* map = find("configmaps", k8s::string_at(volume, "/configMap/name"));
    return map && (*map)["data"].size() == 1 ? (*map)["data"].begin()->get<std::string>() : "";
  }
  return "";
}

bool FakeCluster::lacks_volume(const Json& pod) const {
  for (const Json& volume : pod["spec"]["volumes"]) {
    if (volume.contains("configMap") && !find("configmaps", k8s::string_at(volume, "/configMap/name"))) return true;
  }
  return false;
}

void FakeCluster::end_worker(const std::string& name, int code, const Json& words) {
  Json pod = *find("pods", name);
  set_container(pod, {{"terminated",
                       {{"exitCode", code},
                        {"reason", code ? "Error" : "Completed"},
                        {"finishedAt", k8s::format_time(now_)},
                        {"message", words.is_string() ? words.get<std::string>() : words.dump()}}}});
  set_condition(pod, "Ready", false, now_);
  pod["status"]["phase"] = code ? "Failed" : "Succeeded";
  store("pods", std::move(pod));
}

void FakeCluster::collect() {
  std::set<std::string> uids;
  for (const auto& model : list("parallelmodels")) uids.insert(k8s::uid_of(*model));
  std::set<std::string> pods;
  for (const auto& pod : list("pods")) pods.insert(k8s::uid_of(*pod));
  const auto owned_by_a_pod = [&](const Json& object) {
    const Json& owners = op::at(object, "/metadata/ownerReferences");
    return std::ranges::any_of(owners, [&](const Json& owner) { return pods.contains(owner.at("uid")); });
  };
  std::vector<std::pair<std::string, Key>> orphans;
  for (const auto& [where, stored] : objects_) {
    const auto owner = k8s::controller_of(*stored.object);
    if (owner && owner->kind == "ParallelModel" && !uids.contains(owner->uid)) orphans.push_back(where);
    if (where.first == "podgroups" && !owned_by_a_pod(*stored.object)) orphans.push_back(where);
  }
  for (const auto& [plural, key] : orphans) drop(plural, key);
}

std::map<std::string, int> FakeCluster::free_devices() const {
  std::map<std::string, int> room = more_nodes_;
  room["node-a"] = devices;
  for (const auto& pod : list("pods")) {
    if (pod->at("spec").contains("nodeName") && !ended(*pod))
      room[k8s::string_at(*pod, "/spec/nodeName")] -= devices_of(*pod);
  }
  std::erase_if(room, [&](const auto& node) {
    return dead_nodes_.contains(node.first) || bool_at(*find("nodes", node.first), "/spec/unschedulable");
  });
  return room;
}

std::string FakeCluster::held_by_group(const Json& pod) const {
  const std::string group = k8s::string_at(pod, "/spec/schedulingGroup/podGroupName");
  if (group.empty()) return "";
  const Json* made = find("podgroups", group);
  if (!made) return "no PodGroup";
  size_t members = 0;
  std::map<std::string, int> room = free_devices();
  for (const auto& other : list("pods")) {
    if (k8s::string_at(*other, "/spec/schedulingGroup/podGroupName") != group) continue;
    ++members;
    if (other->at("spec").contains("nodeName")) continue;
    const auto node = std::ranges::find_if(room, [&](const auto& one) { return one.second >= devices_of(*other); });
    if (node == room.end()) return "pod group is unschedulable";
    node->second -= devices_of(*other);
  }
  return members < op::at(*made, "/spec/schedulingPolicy/gang/minCount") ? "pod group is incomplete" : "";
}

/// Binds a pod to the first live node with free devices.
void FakeCluster::bind(Json& pod) {
  if (const Json& gates = at(pod, "/spec/schedulingGates"); gates.is_array() && !gates.empty())
    return set_condition(pod, "PodScheduled", false, now_, "SchedulingGated",
                         "Scheduling is blocked due to non-empty scheduling gates");
  if (const std::string held = held_by_group(pod); held == "no PodGroup")
    return;  // the scheduler says nothing of pods that it has not looked at
  else if (!held.empty())
    return set_condition(pod, "PodScheduled", false, now_, "Unschedulable", held);
  if (!claim_exists || (claim_goes && k8s::label_of(pod, label::role) != "inspect"))
    return set_condition(pod, "PodScheduled", false, now_, "Unschedulable",
                         "0/1 nodes are available: persistentvolumeclaim \"models\" not found.");
  for (const Json& volume : pod["spec"]["volumes"]) {
    const std::string claim = k8s::string_at(volume, "/persistentVolumeClaim/claimName");
    if (!claim.empty() && claim != "models" && !find("persistentvolumeclaims", claim)) {
      return set_condition(pod, "PodScheduled", false, now_, "Unschedulable",
                           "0/1 nodes are available: persistentvolumeclaim \"" + claim + "\" not found.");
    }
  }
  const auto room = free_devices();
  const auto node = std::ranges::find_if(room, [&](const auto& one) { return one.second >= devices_of(pod); });
  if (node == room.end())
    return set_condition(
        pod, "PodScheduled", false, now_, "Unschedulable",
        "0/" + std::to_string(1 + more_nodes_.size()) + " nodes are available: 1 " +
            (pod["spec"].contains("resourceClaims") ? "cannot allocate all claims." : "Insufficient nvidia.com/gpu."));
  pod["spec"]["nodeName"] = node->first;
  set_condition(pod, "PodScheduled", true, now_);
}

void FakeCluster::run_pod(Json& pod) {
  const bool inspects = k8s::label_of(pod, label::role) == "inspect",
             fetches = k8s::label_of(pod, label::role) == "fetch";
  if (!pod["spec"].contains("nodeName")) return bind(pod);
  if (ended(pod)) return;
  if (!running(pod)) {
    if (!mount_failure.empty() || (!inspects && !worker_mount_failure.empty()) || lacks_volume(pod))
      return set_container(pod, {{"waiting", {{"reason", "ContainerCreating"}}}});
    if (!workers_start && !inspects && !fetches)
      return set_container(pod, {{"waiting", {{"reason", waiting_reason}, {"message", waiting_reason + " of \"w\""}}}});
    set_container(pod, {{"running", {{"startedAt", k8s::format_time(now_)}}}});
    pod["status"]["phase"] = "Running";
    pod["status"]["podIP"] = "10.0.0.1";
    return;
  }
  if (inspects) {
    const std::string policy = policy_of(pod);
    const auto failure = inspect_failure                      ? inspect_failure
                         : validate_policy && !policy.empty() ? validate_policy(policy)
                                                              : std::nullopt;
    const Json words = failure ? *failure : metadata;
    set_container(pod, {{"terminated",
                         {{"exitCode", failure ? 3 : 0},
                          {"reason", "x"},
                          {"finishedAt", k8s::format_time(now_)},
                          {"message", words.is_string() ? words.get<std::string>() : words.dump()}}}});
    pod["status"]["phase"] = failure ? "Failed" : "Succeeded";
    return;
  }
  if (fetches) {
    set_condition(pod, "Ready", true, now_);
    if (!fetches_end) return;
    set_container(pod, {{"terminated",
                         {{"exitCode", fetch_failure ? 3 : 0},
                          {"reason", "x"},
                          {"finishedAt", k8s::format_time(now_)},
                          {"message", fetch_failure ? fetch_failure->dump() : "{}"}}}});
    pod["status"]["phase"] = fetch_failure ? "Failed" : "Succeeded";
    return;
  }
  set_condition(pod, "Ready", may_be_ready(pod), now_);
}

/// Returns true when another second does not change the pod.
bool FakeCluster::rests(const Json& pod) const {
  if (ended(pod)) return op::at(pod, "/spec/nodeName").is_string();
  const Json* ready = running(pod) ? k8s::find_condition(op::at(pod, "/status/conditions"), "Ready") : nullptr;
  return ready && k8s::label_of(pod, label::role) != "inspect" &&
         (k8s::label_of(pod, label::role) != "fetch" || !fetches_end) &&
         (k8s::string_at(*ready, "/status") == "True") == may_be_ready(pod);
}

void FakeCluster::tick() {
  now_ += std::chrono::seconds(1);
  if (collects) collect();
  for (const auto& pod : list("pods")) {
    if (dead(*pod)) continue;
    if (k8s::being_deleted(*pod)) {
      const bool drained =
          *k8s::parse_time(k8s::string_at(*pod, "/metadata/deletionTimestamp")) + std::chrono::seconds(drain_seconds) <
          now_;
      if (drained) drop("pods", k8s::key_of(*pod));
      continue;
    }
    if (rests(*pod)) continue;
    Json next = *pod;
    run_pod(next);
    if (next != *pod) store("pods", std::move(next));
  }
}

}  // namespace pm::op::test
