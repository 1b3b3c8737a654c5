#include "controller/operator/hardware.h"

#include <algorithm>

#include "controller/core/quantity.h"
#include "controller/operator/text.h"

namespace pm::op {

namespace {

/// Quantities by name: "nvidia.com/gpu" has a slash, which a JSON pointer would take apart.
int64_t allocatable(const Json& node, const std::string& resource) {
  const Json& all = at(node, "/status/allocatable");
  if (!all.is_object() || !all.contains(resource)) return 0;
  return std::max<int64_t>(0, k8s::quantity_of(all[resource]).value_or(0));
}

int64_t used(const Snapshot& snapshot, const std::string& node, const std::string& resource) {
  const auto here = snapshot.devices_used.find(node);
  if (here == snapshot.devices_used.end()) return 0;
  const auto amount = here->second.find(resource);
  return amount == here->second.end() ? 0 : amount->second;
}

std::optional<Hardware> gpu_memory(const Spec& spec, const Snapshot& snapshot, Hardware hardware) {
  int64_t smallest = 0;
  for (const auto& node : admitted_nodes(spec, snapshot)) {
    if (allocatable(*node, spec.devices.resource) == 0) continue;
    const int64_t mebi = number_of(k8s::label_of(*node, "nvidia.com/gpu.memory")).value_or(0);
    if (mebi > 0 && mebi < (int64_t{1} << 40) && (smallest == 0 || mebi < smallest)) smallest = mebi;
  }
  if (smallest == 0) return std::nullopt;
  hardware.device_memory = smallest << 20;
  hardware.memory_source = "node label";
  return hardware;
}

std::optional<Hardware> cpu_memory(const Spec& spec, const Snapshot& snapshot, Hardware hardware) {
  if (spec.memory) {
    hardware.device_memory = *spec.memory / spec.devices.count;
    hardware.memory_source = "pod share";
    return hardware;
  }
  int64_t largest = 0;
  for (const auto& node : admitted_nodes(spec, snapshot)) largest = std::max(largest, allocatable(*node, "memory"));
  if (largest == 0) return std::nullopt;
  hardware.device_memory = largest / 2 / spec.devices.count;
  hardware.memory_source = "share of half a node";
  return hardware;
}

}  // namespace

std::vector<k8s::ObjectPtr> admitted_nodes(const Spec& spec, const Snapshot& snapshot) {
  std::vector<k8s::ObjectPtr> out;
  if (!snapshot.nodes) return out;
  for (const auto& node : *snapshot.nodes) {
    const auto admits = [&](const auto& item) { return item.value().is_string() && k8s::label_of(*node, item.key()) == item.value(); };
    const auto items = spec.scheduling.node_selector.items();
    bool all = !bool_at(*node, "/spec/unschedulable");
    for (auto item = items.begin(); all && item != items.end(); ++item) all = admits(*item);
    if (all) out.push_back(node);
  }
  return out;
}

std::variant<Hardware, Refusal> hardware_of(const Spec& spec, const Snapshot& snapshot) {
  Hardware hardware{.kind = spec.devices.kind, .devices = spec.devices.count};
  if (spec.devices.memory) {
    hardware.device_memory = *spec.devices.memory;
    hardware.memory_source = "spec";
    return hardware;
  }
  const bool gpu = spec.devices.kind == DeviceKind::GPU;
  if (auto known = gpu ? gpu_memory(spec, snapshot, hardware) : cpu_memory(spec, snapshot, hardware)) return *known;
  if (gpu) {
    return Refusal{"DeviceMemoryUnknown", "no node in sight has " + spec.devices.resource + " and the label nvidia.com/gpu.memory: set spec.devices.memory, for example 80Gi", {}};
  }
  return Refusal{"DeviceMemoryUnknown", "no node is in sight to take a share of: set spec.resources.memory (of a pod) or spec.devices.memory (of a rank)", {}};
}

Wishes wishes_of(const Spec& spec) {
  return {.strategy = spec.strategy, .tensor = spec.tensor, .precision = spec.precision,
          .max_sequence_length = spec.serving.max_sequence_length.value_or(0), .max_concurrency = spec.serving.max_concurrency};
}

std::string free_devices(const Spec& spec, const Snapshot& snapshot) {
  int64_t most = -1, of = 0;
  std::string where;
  for (const auto& node : admitted_nodes(spec, snapshot)) {
    const std::string name = k8s::key_of(*node).name;
    const int64_t total = allocatable(*node, spec.devices.resource);
    const int64_t free = std::max<int64_t>(0, total - used(snapshot, name, spec.devices.resource));
    if (free > most) most = free, of = total, where = name;
  }
  if (most < 0) return "free 0";
  return "free " + std::to_string(most) + " of " + std::to_string(of) + " on " + where;
}

}  // namespace pm::op
