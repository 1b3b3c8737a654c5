// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/hardware.h"

#include <algorithm>
#include <cstdlib>

#include "base/quantity.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/planning/shared_devices.h"
#include "planner/hardware.h"

namespace pm::op {

namespace {

/// Reads a quantity by name, for a JSON pointer would split "nvidia.com/gpu" at the slash.
int64_t allocatable(const Json& node, const std::string& resource) {
  const Json& all = at(node, "/status/allocatable");
  if (!all.is_object() || !all.contains(resource)) return 0;
  return std::max<int64_t>(0, base::quantity_of(all[resource]).value_or(0));
}

int64_t used(const Snapshot& snapshot, const std::string& node, const std::string& resource) {
  const auto here = snapshot.devices_used.find(node);
  if (here == snapshot.devices_used.end()) return 0;
  const auto amount = here->second.find(resource);
  return amount == here->second.end() ? 0 : amount->second;
}

/// Parses the value of a label as a positive decimal number: "450", "12.5".
std::optional<double> decimal(const std::string& text) {
  if (text.empty() || text.size() > 12 || text.find_first_not_of("0123456789.") != std::string::npos)
    return std::nullopt;
  const size_t dot = text.find('.');
  if (dot != std::string::npos && (dot == 0 || dot + 1 == text.size() || text.find('.', dot + 1) != std::string::npos))
    return std::nullopt;
  const double value = std::strtod(text.c_str(), nullptr);
  return value > 0 ? std::optional(value) : std::nullopt;
}

/// Reads the hardware from node labels: the minimum over the nodes with the label, and the product if all nodes agree.
void read_labels(const Spec& spec, const std::vector<k8s::ObjectPtr>& nodes, Hardware& hardware) {
  struct Label {
    const char* name;
    double unit;
    bool most_is_worst;
    HardwareValue* figure;
  };
  const Label labels[] = {{"parallelmodel.dev/memory-gigabytes-per-second", 1e9, false, &hardware.memory_bandwidth},
                          {"parallelmodel.dev/teraflops", 1e12, false, &hardware.flops},
                          {"parallelmodel.dev/link-gigabytes-per-second", 1e9, false, &hardware.link_bandwidth},
                          {"parallelmodel.dev/link-microseconds", 1e-6, true, &hardware.link_latency}};
  for (const auto& node : nodes) {
    for (const Label& label : labels) {
      const auto value = decimal(k8s::label_of(*node, label.name));
      if (!value) continue;
      const double found = *value * label.unit;
      const bool worse = label.most_is_worst ? found > label.figure->value : found < label.figure->value;
      if (label.figure->value == 0 || worse) *label.figure = {found, "node label"};
    }
  }
  const auto product_label = [&](const auto& node) { return device_labels(*node, spec.devices.resource).product; };
  if (nodes.empty()) return;
  const std::string product = product_label(nodes.front());
  if (std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) { return product_label(node) == product; }))
    hardware.product = product;
}

std::string no_labels(const Spec& spec) {
  return "no visible node has " + spec.devices.resource +
         " and the label nvidia.com/gpu.memory, or a label nvidia.com/gpu.product that the planner knows";
}

/// A device that several pods share counts with a share of its memory.
std::optional<Hardware> gpu_memory(const Spec& spec, const Snapshot& snapshot, Hardware hardware) {
  int64_t smallest = 0;
  int most_pods = 1;
  for (const auto& node : device_nodes(spec, snapshot)) {
    const DeviceLabels labels = device_labels(*node, spec.devices.resource);
    most_pods = std::max(most_pods, labels.shared_by);
    if (labels.memory > 0 && (smallest == 0 || labels.share() < smallest)) smallest = labels.share();
  }
  const std::string shared = most_pods > 1 ? ", shared by " + std::to_string(most_pods) + " pods" : "";
  if (smallest > 0) {
    hardware.device_memory = smallest;
    hardware.memory_source = "node label" + shared;
    return hardware;
  }
  const Product* product = product_of(hardware.product);
  if (!product) return std::nullopt;
  if (most_pods == 1) return hardware;  // the planner reads the table
  hardware.device_memory = static_cast<int64_t>(product->memory) / most_pods;
  hardware.memory_source = "product table" + shared;
  return hardware;
}

/// Lists the admitted nodes with the resource, and what other ParallelModels hold there. Of those that say no size it
/// is a share. Other replicas of this model are spread over the nodes.
std::vector<DeviceOffer> device_offers(const Spec& spec, const Snapshot& snapshot, int64_t memory) {
  std::vector<DeviceOffer> out;
  const auto nodes = device_nodes(spec, snapshot);
  for (const auto& node : nodes) {
    DeviceOffer offer{.node = k8s::key_of(*node).name, .labels = device_labels(*node, spec.devices.resource)};
    offer.devices = allocatable(*node, spec.devices.resource) / offer.labels.shared_by;
    if (const auto here = snapshot.memory_held.find(offer.node); here != snapshot.memory_held.end()) {
      if (const auto found = here->second.find(spec.devices.resource); found != here->second.end())
        offer.held = found->second;
    }
    std::ranges::replace(offer.held, int64_t{0}, offer.labels.share());
    const int beside = std::max(0, spec.replicas - 1) / static_cast<int>(nodes.size());
    offer.held.insert(offer.held.end(), beside, memory);
    out.push_back(std::move(offer));
  }
  return out;
}

/// Takes the memory from ResourceSlices, and the labels of the nodes that hold the devices.
std::variant<Hardware, Refusal> slice_memory(const Spec& spec, const Snapshot& snapshot,
                                             const DeviceInventory& inventory, Hardware hardware) {
  const SelectedDevices devices = select_devices(spec, snapshot, inventory);
  read_labels(spec, devices.nodes, hardware);
  if (!devices.product.empty()) hardware.product = clip(devices.product, 63);
  if (devices.memory > 0) {
    hardware.device_memory = devices.memory;
    hardware.memory_source = "ResourceSlice";
    return hardware;
  }
  if (devices.count > 0 && product_of(hardware.product)) return hardware;  // the table of the planner has its memory
  const std::string labels = spec.devices.claim ? "" : no_labels(spec) + "; ";
  return Refusal{Reason::DeviceMemoryUnknown,
                 labels + why_memory_is_unknown(inventory, devices) + ": set spec.devices.memory, for example 80Gi",
                 {}};
}

std::optional<Hardware> cpu_memory(const Spec& spec, const Snapshot& snapshot, Hardware hardware) {
  if (spec.memory) {
    hardware.device_memory = *spec.memory / spec.devices.per_node;
    hardware.memory_source = "pod share";
    return hardware;
  }
  int64_t largest = 0;
  for (const auto& node : admitted_nodes(spec, snapshot)) largest = std::max(largest, allocatable(*node, "memory"));
  if (largest == 0) return std::nullopt;
  hardware.device_memory = largest / 2 / spec.devices.per_node;
  hardware.memory_source = "share of half a node";
  return hardware;
}

std::optional<Hardware> memory_of_device(const Spec& spec, const Snapshot& snapshot, Hardware hardware) {
  if (!spec.devices.memory)
    return (spec.devices.kind == DeviceKind::GPU ? gpu_memory : cpu_memory)(spec, snapshot, std::move(hardware));
  hardware.device_memory = *spec.devices.memory;
  hardware.memory_source = "spec";
  return hardware;
}

}  // namespace

std::vector<k8s::ObjectPtr> admitted_nodes(const Spec& spec, const Snapshot& snapshot) {
  std::vector<k8s::ObjectPtr> out;
  if (!snapshot.nodes) return out;
  for (const auto& node : *snapshot.nodes) {
    const auto admits = [&](const auto& item) {
      return item.value().is_string() &&
             k8s::label_of(*node, item.key()) == item.value().template get_ref<const std::string&>();
    };
    const auto items = spec.scheduling.node_selector.items();
    bool all = !bool_at(*node, "/spec/unschedulable");
    for (auto item = items.begin(); all && item != items.end(); ++item) all = admits(*item);
    if (all) out.push_back(node);
  }
  return out;
}

std::vector<k8s::ObjectPtr> device_nodes(const Spec& spec, const Snapshot& snapshot) {
  std::vector<k8s::ObjectPtr> out;
  for (const auto& node : admitted_nodes(spec, snapshot)) {
    if (spec.devices.resource.empty() || allocatable(*node, spec.devices.resource) > 0) out.push_back(node);
  }
  return out;
}

std::variant<Hardware, Refusal> hardware_of(const Spec& spec, const Snapshot& snapshot,
                                            const std::optional<DeviceInventory>& inventory) {
  Hardware hardware{
      .kind = spec.devices.kind, .devices = spec.devices.count, .devices_per_node = spec.devices.per_node};
  if (inventory) return slice_memory(spec, snapshot, *inventory, hardware);
  read_labels(spec, device_nodes(spec, snapshot), hardware);
  const bool gpu = spec.devices.kind == DeviceKind::GPU;
  if (gpu && spec.devices.claim && !spec.devices.memory)
    return Refusal{Reason::DeviceMemoryUnknown,
                   "the memory of a claimed device stands in ResourceSlices, which were not read: set "
                   "spec.devices.memory, for example 80Gi",
                   {}};
  if (const auto known = memory_of_device(spec, snapshot, hardware)) {
    if (spec.devices.resource.empty()) return *known;
    const std::string why =
        refuse_shares(device_offers(spec, snapshot, known->device_memory), spec.devices.per_node, known->device_memory);
    if (why.empty()) return *known;
    return Refusal{Reason::DoesNotFit, why, {}};
  }
  if (gpu) {
    return Refusal{Reason::DeviceMemoryUnknown, no_labels(spec) + ": set spec.devices.memory, for example 80Gi", {}};
  }
  return Refusal{Reason::DeviceMemoryUnknown,
                 "no node is visible to derive the memory from: set spec.resources.memory (of a pod) or "
                 "spec.devices.memory (of a rank)",
                 {}};
}

PlanConstraints planner_constraints(const Spec& spec) {
  return {.strategy = spec.strategy,
          .tensor = spec.tensor,
          .pipeline = spec.pipeline,
          .data = spec.data,
          .precision = spec.precision,
          .kv_precision = spec.kv_precision,
          .max_sequence_length = spec.serving.max_sequence_length.value_or(0),
          .max_concurrency = spec.serving.max_concurrency,
          .objective = spec.objective,
          .micro_batches = spec.micro_batches,
          .offload_to = spec.offload_to};
}

std::string free_devices(const Spec& spec, const Snapshot& snapshot) {
  int64_t most = -1, of = 0;
  std::string where;
  for (const auto& node : device_nodes(spec, snapshot)) {
    const std::string name = k8s::key_of(*node).name;
    const int64_t total = allocatable(*node, spec.devices.resource);
    const int64_t free = std::max<int64_t>(0, total - used(snapshot, name, spec.devices.resource));
    if (free > most) most = free, of = total, where = name;
  }
  if (most < 0) return "free 0";
  return "free " + std::to_string(most) + " of " + std::to_string(of) + " on " + where;
}

}  // namespace pm::op
