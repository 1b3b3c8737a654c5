// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/planning/device_inventory.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/quantity.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/planning/cel_terms.h"
#include "controller/operator/planning/hardware.h"

namespace pm::op {

namespace {

constexpr const char *page_size = "500", *class_prefix = "deviceclass.resource.kubernetes.io/";

/// Returns the DeviceClass that the spec names itself; "" when one is to be found by its extended resource.
std::string named_class(const Spec& spec) {
  if (spec.devices.claim) return spec.devices.claim->device_class;
  const std::string prefix = class_prefix;
  return spec.devices.resource.starts_with(prefix) ? spec.devices.resource.substr(prefix.size()) : "";
}

std::vector<DeviceTerm> terms_of(const std::vector<std::string>& selectors) {
  std::vector<DeviceTerm> terms;
  for (const std::string& selector : selectors) {
    for (DeviceTerm& term : read_terms(selector)) terms.push_back(std::move(term));
  }
  return terms;
}

std::vector<DeviceTerm> terms_of(const Spec& spec, const DeviceInventory& inventory) {
  std::vector<std::string> all = inventory.selectors;
  if (spec.devices.claim)
    all.insert(all.end(), spec.devices.claim->selectors.begin(), spec.devices.claim->selectors.end());
  return terms_of(all);
}

/// Returns true for a name that a field selector takes as it is.
bool is_plain(const std::string& driver) {
  return !driver.empty() && driver.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-.") == std::string::npos;
}

std::vector<std::string> class_selectors(const Json& device_class) {
  std::vector<std::string> out;
  const Json& selectors = at(device_class, "/spec/selectors");
  if (!selectors.is_array()) return out;
  for (const Json& selector : selectors) out.push_back(k8s::string_at(selector, "/cel/expression"));
  return out;
}

/// Returns the class that the scheduler takes for an extended resource: the newest, then the first by name.
const Json* class_for(const Json& list, const std::string& resource) {
  const Json* best = nullptr;
  const Json& items = at(list, "/items");
  if (!items.is_array()) return nullptr;
  for (const Json& item : items) {
    if (k8s::string_at(item, "/spec/extendedResourceName") != resource) continue;
    const auto order = [](const Json& one) { return k8s::string_at(one, "/metadata/creationTimestamp"); };
    if (!best || order(item) > order(*best) ||
        (order(item) == order(*best) && k8s::key_of(item).name < k8s::key_of(*best).name))
      best = &item;
  }
  return best;
}

void take_class(const Json& device_class, DeviceInventory& inventory) {
  inventory.device_class = k8s::key_of(device_class).name;
  inventory.selectors = class_selectors(device_class);
}

void end(DeviceInventory& inventory, std::string unknown = "") {
  inventory.unknown = std::move(unknown);
  inventory.complete = true;
}

/// Returns the value of a name with any domain, or without one; null when there is none.
const Json& of_any_domain(const Json& values, const std::string& name) {
  static const Json nothing;
  if (!values.is_object()) return nothing;
  for (const auto& [key, value] : values.items()) {
    if (key == name || key.ends_with("/" + name)) return value;
  }
  return nothing;
}

/// The nodes of the snapshot that the spec admits. Where nodes may not be read, every slice counts.
class AdmittedNodes {
 public:
  AdmittedNodes(const Spec& spec, const Snapshot& snapshot)
      : known_(snapshot.nodes.has_value()), nodes_(admitted_nodes(spec, snapshot)) {}

  /// Returns whether a slice, or a device of one, counts, and notes the nodes that hold it.
  bool admit(const Json& placed) {
    const std::string name = k8s::string_at(placed, "/nodeName");
    if (!known_) return true;
    if (name.empty()) {
      holds_all_ = true;
      return !nodes_.empty();
    }
    const bool here = std::ranges::any_of(nodes_, [&](const auto& node) { return k8s::key_of(*node).name == name; });
    if (here) names_.insert(name);
    return here;
  }

  std::vector<k8s::ObjectPtr> holding() const {
    std::vector<k8s::ObjectPtr> out;
    for (const auto& node : nodes_) {
      if (holds_all_ || names_.contains(k8s::key_of(*node).name)) out.push_back(node);
    }
    return out;
  }

 private:
  const bool known_;
  const std::vector<k8s::ObjectPtr> nodes_;
  bool holds_all_ = false;
  std::set<std::string> names_;
};

using Pool = std::pair<std::string, std::string>;

Pool pool_of(const Json& slice) { return {k8s::string_at(slice, "/driver"), k8s::string_at(slice, "/pool/name")}; }
int64_t generation_of(const Json& slice) { return integer_at(slice, "/pool/generation").value_or(0); }

std::map<Pool, int64_t> newest_generations(const std::vector<Json>& slices) {
  std::map<Pool, int64_t> newest;
  for (const Json& slice : slices) {
    int64_t& generation = newest[pool_of(slice)];
    generation = std::max(generation, generation_of(slice));
  }
  return newest;
}

class Selection {
 public:
  Selection(const Spec& spec, const Snapshot& snapshot, const DeviceInventory& inventory)
      : terms_(terms_of(spec, inventory)), nodes_(spec, snapshot) {}

  void add_slice(const Json& slice) {
    const Json& devices = at(slice, "/devices");
    if (!devices.is_array()) return;
    const std::string driver = k8s::string_at(slice, "/driver");
    for (const Json& device : devices) {
      const bool selected =
          std::ranges::all_of(terms_, [&](const auto& term) { return fulfils(term, driver, device); });
      if (selected && nodes_.admit(bool_at(slice, "/perDeviceNodeSelection") ? device : slice)) add_device(device);
    }
  }

  SelectedDevices result() {
    out_.nodes = nodes_.holding();
    if (products_.size() == 1) out_.product = *products_.begin();
    return std::move(out_);
  }

 private:
  void add_device(const Json& device) {
    ++out_.count;
    const int64_t memory =
        base::quantity_of(at(of_any_domain(at(device, "/capacity"), "memory"), "/value")).value_or(0);
    if (memory > 0) out_.memory = out_.memory > 0 ? std::min(out_.memory, memory) : memory;
    std::string product = k8s::string_at(of_any_domain(at(device, "/attributes"), "productName"), "/string");
    std::ranges::replace(product, ' ', '-');
    products_.insert(std::move(product));
  }

  const std::vector<DeviceTerm> terms_;
  AdmittedNodes nodes_;
  std::set<std::string> products_;
  SelectedDevices out_;
};

}  // namespace

bool needs_inventory(const Spec& spec, const Snapshot& snapshot) {
  if (spec.devices.kind != DeviceKind::GPU || spec.devices.memory) return false;
  return spec.devices.claim || device_nodes(spec, snapshot).empty();
}

k8s::Request next_request(const Spec& spec, const DeviceInventory& inventory) {
  if (!inventory.class_read) {
    const std::string name = named_class(spec);
    return {.verb = name.empty() ? k8s::Verb::List : k8s::Verb::Get, .resource = device_classes_resource, .name = name};
  }
  k8s::Request request{.verb = k8s::Verb::List, .resource = resource_slices_resource, .query = {{"limit", page_size}}};
  if (!inventory.next_page.empty()) request.query["continue"] = inventory.next_page;
  for (const DeviceTerm& term : terms_of(spec, inventory)) {
    if (term.property != DeviceTerm::Property::Driver) continue;
    if (const auto& driver = std::get<std::string>(term.value); is_plain(driver))
      request.query["fieldSelector"] = "spec.driver=" + driver;
  }
  return request;
}

void add_response(const Spec& spec, const k8s::Response& response, DeviceInventory& inventory) {
  const std::string name = named_class(spec);
  if (k8s::failed(response)) {
    const k8s::ApiError& error = k8s::error_of(response);
    if (error.failure == k8s::Failure::Forbidden)
      return end(inventory,
                 "ResourceSlices could not be read: the controller may not list them; install the chart with "
                 "dra.enabled=true");
    if (!inventory.class_read && !name.empty() && error.message.find("\"" + name + "\" not found") != std::string::npos)
      return end(inventory, "there is no DeviceClass " + name);
    return end(inventory,
               "ResourceSlices could not be read: the cluster does not serve resource.k8s.io/v1, as Kubernetes "
               "does from 1.34 on");
  }
  const Json& object = k8s::object_of(response);
  if (!std::exchange(inventory.class_read, true)) {
    const Json* device_class = name.empty() ? class_for(object, spec.devices.resource) : &object;
    if (!device_class) return end(inventory, "no DeviceClass has the extendedResourceName " + spec.devices.resource);
    return take_class(*device_class, inventory);
  }
  if (const Json& items = at(object, "/items"); items.is_array()) {
    for (const Json& item : items) inventory.slices.push_back(at(item, "/spec"));
  }
  inventory.next_page = k8s::string_at(object, "/metadata/continue");
  if (inventory.next_page.empty()) end(inventory);
}

SelectedDevices select_devices(const Spec& spec, const Snapshot& snapshot, const DeviceInventory& inventory) {
  Selection selection(spec, snapshot, inventory);
  const auto newest = newest_generations(inventory.slices);
  for (const Json& slice : inventory.slices) {
    if (generation_of(slice) == newest.at(pool_of(slice))) selection.add_slice(slice);
  }
  return selection.result();
}

std::string why_memory_is_unknown(const DeviceInventory& inventory, const SelectedDevices& selected) {
  if (!inventory.unknown.empty()) return inventory.unknown;
  if (selected.count == 0)
    return "DeviceClass " + inventory.device_class + " selects no device of any ResourceSlice on admitted nodes";
  return "the " + std::to_string(selected.count) + " devices of DeviceClass " + inventory.device_class +
         " on admitted nodes have no capacity memory in their ResourceSlices";
}

}  // namespace pm::op
