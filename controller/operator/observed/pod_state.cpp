// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/observed/pod_state.h"

#include <algorithm>
#include <array>

#include "contract/termination.h"
#include "controller/core/conditions.h"
#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

namespace {

constexpr const char* gated_reason = "SchedulingGated";

/// Conditions of pods that something ends on purpose: Kubernetes by the first, queues such as Kueue by the second.
constexpr std::array disruption_conditions{"DisruptionTarget", "TerminationTarget"};

/// Returns the status of the worker's container, or null.
const Json& container_status(const Json& pod) {
  const Json& statuses = at(pod, "/status/containerStatuses");
  if (statuses.is_array()) {
    for (const Json& status : statuses) {
      if (k8s::string_at(status, "/name") == container_name) return status;
    }
  }
  return at(Json(), "/none");
}

std::optional<k8s::WallTime> time_at(const Json& object, const std::string& pointer) {
  return k8s::parse_time(k8s::string_at(object, pointer));
}

/// Parses the "REASON: message" that a worker prints last when it is refused before it has a launcher. Its exit code
/// says that it did.
void read_refusal(const std::string& text, Exit& exit) {
  if (!exit.code || *exit.code < 2 || *exit.code > 4) return;
  const std::string line = text.substr(text.find_last_of('\n', text.find_last_not_of('\n')) + 1);
  const size_t colon = line.find(": ");
  if (colon == std::string::npos) return;
  exit.reason = reason_word(line.substr(0, colon), "");
  if (!exit.reason.empty()) exit.message = clip(line, 1000);
}

/// Parses the termination message of the launcher, {rank, reason, exitCode, message}, or takes any other text as it is.
Exit exit_of_container(const Json& terminated) {
  Exit exit;
  exit.at = time_at(terminated, "/finishedAt");
  if (const auto code = integer_at(terminated, "/exitCode"))
    exit.code = static_cast<int>(std::clamp<int64_t>(*code, -1, 255));
  const std::string text = k8s::string_at(terminated, "/message"), why = k8s::string_at(terminated, "/reason");
  if (const auto termination = parse_termination(text)) {
    exit.reason = reason_word(termination->reason, "");
    exit.message = clip(termination->message, 1000);
    exit.rank = termination->rank;
  } else {
    exit.message =
        clip(text.size() > 900 ? std::string_view(text).substr(text.size() - 900) : std::string_view(text), 1000);
    read_refusal(text, exit);
  }
  if (why == "OOMKilled") exit.reason = name_of(Reason::OOMKilled);
  if (exit.reason.empty()) exit.reason = name_of(Reason::RankLost);
  if (exit.message.empty()) {
    exit.message = exit.reason == Reason::OOMKilled
                       ? "the memory limit of the pod was reached"
                       : "the worker ended with exit code " + std::to_string(exit.code.value_or(-1)) +
                             (why.empty() ? "" : " (" + clip(why, 64) + ")");
  }
  return exit;
}

/// Returns the exit of a pod that ended without a container status: refused by the kubelet, evicted, node shut down.
Exit exit_of_pod(const Json& pod) {
  const std::string why = reason_word(k8s::string_at(pod, "/status/reason"), "");
  Exit exit;
  exit.reason = why == "UnexpectedAdmissionError" ? name_of(Reason::DeviceFault)
                : why == "Evicted" || why == "NodeLost" || why == "NodeShutdown" || why == "Terminated"
                    ? name_of(Reason::NodeLost)
                    : name_of(Reason::RankLost);
  exit.message = clip((why.empty() ? "the pod failed" : why) + ": " + k8s::string_at(pod, "/status/message"), 1000);
  return exit;
}

/// A pod that a kubelet evicts because its node lacks memory or disk is a failure: the next one may do the same again.
std::string disruption_of(const Json& pod) {
  if (k8s::string_at(pod, "/status/reason") == "Evicted") return "";
  for (const char* type : disruption_conditions) {
    const Json* condition = k8s::find_condition(at(pod, "/status/conditions"), type);
    if (condition && k8s::string_at(*condition, "/status") == "True")
      return reason_word(k8s::string_at(*condition, "/reason"), type) + ": " +
             clip(k8s::string_at(*condition, "/message"), 300);
  }
  return "";
}

/// Calls back with the name of the resource and each of its devices that the worker holds, as the kubelet reports them.
template <class Each>
void for_each_device(const Json& status, Each each) {
  const Json& resources = at(status, "/allocatedResourcesStatus");
  if (!resources.is_array()) return;
  for (const Json& resource : resources) {
    const Json& devices = at(resource, "/resources");
    if (!devices.is_array()) continue;
    for (const Json& device : devices) each(k8s::string_at(resource, "/name"), device);
  }
}

bool is_unhealthy(const Json& device) { return k8s::string_at(device, "/health") == "Unhealthy"; }

std::string unhealthy_device_of(const Json& status) {
  std::string out;
  for_each_device(status, [&](const std::string& resource, const Json& device) {
    if (out.empty() && is_unhealthy(device)) out = clip(resource + " " + k8s::string_at(device, "/resourceID"), 200);
  });
  return out;
}

/// Says what holds a pod by its scheduling gates.
std::string gated_text(const Json& pod, const std::string& message) {
  const std::string queue = k8s::label_of(pod, label::queue_name), group = k8s::label_of(pod, label::queue_group);
  if (queue.empty()) return "scheduling gates hold it: " + clip(message, 600);
  const std::string workload = group.empty() ? "workloads.kueue.x-k8s.io" : "workloads.kueue.x-k8s.io " + group;
  return "the queue " + queue + " has not admitted it yet; kubectl describe " + workload + " says why";
}

std::optional<Wait> wait_of(const Json& pod, const Json& state, bool bound) {
  const Json* scheduled = k8s::find_condition(at(pod, "/status/conditions"), "PodScheduled");
  if (!bound) {
    const std::string reason = scheduled ? k8s::string_at(*scheduled, "/reason") : "",
                      message = scheduled ? k8s::string_at(*scheduled, "/message") : "";
    if (reason.empty() && message.empty())
      return Wait{name_of(Reason::Starting), "the scheduler has not processed the pod yet"};
    if (reason == gated_reason)
      return Wait{name_of(Reason::QueueWaiting), gated_text(pod, message.empty() ? reason : message)};
    return Wait{name_of(Reason::Unschedulable), clip(message.empty() ? reason : message, 700)};
  }
  const std::string reason = k8s::string_at(state, "/waiting/reason"),
                    message = clip(k8s::string_at(state, "/waiting/message"), 700);
  static const std::array image{"ErrImagePull",      "ImagePullBackOff",  "InvalidImageName",
                                "ErrImageNeverPull", "ImageInspectError", "RegistryUnavailable"};
  if (std::find(image.begin(), image.end(), reason) != image.end())
    return Wait{name_of(Reason::ImagePullFailed), message.empty() ? reason : message};
  if (reason == "CreateContainerConfigError") return Wait{name_of(Reason::VolumeNotMounted), message};
  if (!reason.empty() && reason != "ContainerCreating" && reason != "PodInitializing")
    return Wait{name_of(Reason::Starting), clip(reason, 64) + ": " + message};
  return Wait{name_of(Reason::Starting), "the container is being created"};
}

bool ready_condition(const Json& node) { return k8s::condition_is_true(at(node, "/status/conditions"), "Ready"); }

/// Copies the value at a JSON pointer if it exists.
void keep(const Json& from, Json& to, const char* pointer) {
  if (const Json* value = k8s::find_at(from, pointer)) to[Json::json_pointer(pointer)] = *value;
}

void keep_conditions(const Json& pod, Json& kept) {
  Json& out = kept["status"]["conditions"] = Json::array();
  for (const char* type : {"PodScheduled", "Ready", disruption_conditions[0], disruption_conditions[1]}) {
    if (const Json* condition = k8s::find_condition(at(pod, "/status/conditions"), type)) {
      out.push_back({{"type", type},
                     {"status", at(*condition, "/status")},
                     {"lastTransitionTime", at(*condition, "/lastTransitionTime")}});
      for (const char* why : {"/reason", "/message"}) keep(*condition, out.back(), why);
    }
  }
}

/// Copies what the operator reads of the status of the worker's container: its state and unhealthy devices.
void keep_container(const Json& status, Json& kept) {
  if (!status.is_object()) return;
  Json container{{"name", container_name}, {"state", at(status, "/state")}};
  for_each_device(status, [&](const std::string& resource, const Json& device) {
    if (is_unhealthy(device))
      container["allocatedResourcesStatus"].push_back({{"name", resource}, {"resources", Json::array({device})}});
  });
  kept["status"]["containerStatuses"] = Json::array({std::move(container)});
}

}  // namespace

void prune_pod(Json& pod) {
  Json kept = Json::object();
  for (const char* field : {"/metadata/name", "/metadata/namespace", "/metadata/uid", "/metadata/resourceVersion",
                            "/metadata/creationTimestamp", "/metadata/deletionTimestamp", "/spec/nodeName",
                            "/spec/schedulingGroup/podGroupName", "/spec/resourceClaims", "/status/phase",
                            "/status/reason", "/status/message", "/status/podIP"}) {
    keep(pod, kept, field);
  }
  if (const auto owner = k8s::controller_of(pod)) {
    kept["metadata"]["ownerReferences"] = Json::array({{{"apiVersion", owner->api_version},
                                                        {"kind", owner->kind},
                                                        {"name", owner->name},
                                                        {"uid", owner->uid},
                                                        {"controller", true}}});
  }
  const auto ours = [](const std::string& key) {
    return key.starts_with("parallelmodel.dev/") || key == label::queue_name || key == label::queue_group;
  };
  for (const char* map : {"labels", "annotations"}) {
    const Json& all = at(pod, std::string("/metadata/") + map);
    if (!all.is_object()) continue;
    for (const auto& [key, value] : all.items()) {
      if (ours(key)) kept["metadata"][map][key] = value;
    }
  }
  const Json& limits = at(pod, "/spec/containers/0/resources/limits");
  if (limits.is_object()) {
    Json devices = Json::object();
    for (const auto& [resource, quantity] : limits.items()) {
      if (resource.find('/') != std::string::npos) devices[resource] = quantity;
    }
    if (!devices.empty()) kept["spec"]["containers"] = Json::array({{{"resources", {{"limits", std::move(devices)}}}}});
  }
  keep_conditions(pod, kept);
  keep_container(container_status(pod), kept);
  pod = std::move(kept);
}

bool node_ready(const Snapshot& snapshot, const std::string& name) {
  if (!snapshot.nodes) return true;  // nodes may not be read
  for (const auto& node : *snapshot.nodes) {
    if (k8s::key_of(*node).name == name) return ready_condition(*node);
  }
  return false;
}

PodState pod_state(const k8s::ObjectPtr& pod, const Snapshot& snapshot) {
  PodState out;
  out.object = pod;
  out.name = k8s::key_of(*pod).name;
  out.node = k8s::string_at(*pod, "/spec/nodeName");
  out.pod_group = k8s::string_at(*pod, "/spec/schedulingGroup/podGroupName");
  out.claim_template = k8s::string_at(*pod, "/spec/resourceClaims/0/resourceClaimTemplateName");
  out.hash = k8s::label_of(*pod, label::pod_hash);
  out.replica = static_cast<int>(
      std::clamp<int64_t>(parse_integer(k8s::label_of(*pod, label::replica)).value_or(-1), -1, 1 << 20));
  out.node_rank = static_cast<int>(
      std::clamp<int64_t>(parse_integer(k8s::label_of(*pod, label::node_rank)).value_or(-1), -1, 1 << 20));
  out.replica_generation = parse_integer(k8s::label_of(*pod, label::replica_generation)).value_or(0);
  out.nodes =
      static_cast<int>(std::clamp<int64_t>(parse_integer(annotation_of(*pod, annotation::nodes)).value_or(1), 1, 1024));
  out.deleting = k8s::being_deleted(*pod);
  out.created_since = time_at(*pod, "/metadata/creationTimestamp");

  const Json &container = container_status(*pod), &state = at(container, "/state");
  const std::string phase = k8s::string_at(*pod, "/status/phase");
  if (state.contains("terminated"))
    out.exit = exit_of_container(at(state, "/terminated"));
  else if (phase == "Failed" || phase == "Succeeded")
    out.exit = exit_of_pod(*pod);
  if (state.contains("running")) out.running_since = time_at(state, "/running/startedAt").value_or(snapshot.now);

  const Json& conditions = at(*pod, "/status/conditions");
  out.ready = !out.exit && !out.deleting && k8s::condition_is_true(conditions, "Ready");
  if (const Json* ready = k8s::find_condition(conditions, "Ready"); ready && out.ready)
    out.ready_since = time_at(*ready, "/lastTransitionTime");
  if (out.bound()) {
    const Json* scheduled = k8s::find_condition(conditions, "PodScheduled");
    out.bound_since = (scheduled ? time_at(*scheduled, "/lastTransitionTime") : std::nullopt).value_or(snapshot.now);
  }
  if (!out.exit && !out.running_since) {
    out.wait = wait_of(*pod, state, out.bound());
    const Json* scheduled = k8s::find_condition(conditions, "PodScheduled");
    out.gated = !out.bound() && scheduled && k8s::string_at(*scheduled, "/reason") == gated_reason;
    const std::string why = k8s::string_at(state, "/waiting/reason");
    const bool making = why.empty() || why == "ContainerCreating" || why == "PodInitializing";
    if (out.bound() && making && scheduled) out.creating_since = time_at(*scheduled, "/lastTransitionTime");
  }
  out.disruption = disruption_of(*pod);
  out.unhealthy_device = unhealthy_device_of(container);
  out.fenced = out.deleting && out.bound() && snapshot.nodes && !node_ready(snapshot, out.node);
  return out;
}

std::vector<PodState> worker_pods(const Snapshot& snapshot) {
  std::vector<PodState> out;
  for (const auto& pod : snapshot.pods) {
    if (k8s::label_of(*pod, label::role) != "worker") continue;
    PodState state = pod_state(pod, snapshot);
    if (state.replica >= 0 && state.node_rank >= 0) out.push_back(std::move(state));
  }
  return out;
}

}  // namespace pm::op
