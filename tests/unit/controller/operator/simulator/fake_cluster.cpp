// SPDX-License-Identifier: Apache-2.0
#include "fake_cluster.h"

#include <algorithm>

#include "controller/core/conditions.h"
#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/shell/store_options.h"
#include "tests/unit/planner/models.h"

namespace pm::op::test {

using k8s::Key;

namespace {

/// Returns true for objects that the label selector of the watch admits.
bool selected(const std::string& plural, const Json& object) {
  return plural == "parallelmodels" || plural == "nodes" || !k8s::label_of(object, label::name).empty();
}

/// Prunes as the stores of the operator do, which must retain all that is read. Models are small and stay as they are.
k8s::ObjectPtr pruned(const std::string& plural, const k8s::ObjectPtr& object) {
  static const std::map<std::string, k8s::Prune> prunes = [] {
    std::map<std::string, k8s::Prune> out;
    for (const k8s::Resource* one : {&k8s::pods_resource, &k8s::config_maps_resource, &k8s::services_resource,
                                     &k8s::pod_disruption_budgets_resource, &k8s::nodes_resource})
      out[one->plural] = store_options(*one).prune;
    return out;
  }();
  const auto prune = prunes.find(plural);
  if (prune == prunes.end()) return object;
  Json out = *object;
  prune->second(out);
  return std::make_shared<const Json>(std::move(out));
}

}  // namespace

FakeCluster::FakeCluster() : metadata(small_metadata()), now_(*k8s::parse_time("2026-01-01T00:00:00Z")) {
  add_node("node-a", 8);
  more_nodes_.clear();  // its devices are a setting of the test
}

void FakeCluster::add_node(const std::string& name, int devices) {
  put("nodes", {{"metadata", {{"name", name}, {"labels", {{"nvidia.com/gpu.memory", "81920"}}}}},
                {"status",
                 {{"allocatable", {{"nvidia.com/gpu", std::to_string(devices)}, {"memory", "64Gi"}}},
                  {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
  more_nodes_[name] = devices;
}

void FakeCluster::remember() {
  if (!remembers) return;
  history_.push_back(objects_);
  if (history_.size() > 16) history_.erase(history_.begin());
}

const Json& FakeCluster::store(const std::string& plural, Json object) {
  object["metadata"]["resourceVersion"] = std::to_string(++version_);
  Stored& place = objects_[{plural, k8s::key_of(object)}];
  place = {std::make_shared<const Json>(std::move(object)), nullptr};
  if (selected(plural, *place.object)) {
    place.kept = pruned(plural, place.object);
    watch_events_[plural].events.push_back({false, place.kept});
  }
  if (plural == "parallelmodels" && place.object->contains("status")) taken = nullptr;
  remember();
  return *place.object;
}

void FakeCluster::drop(const std::string& plural, const Key& key) {
  const auto place = objects_.find({plural, key});
  ++version_;
  if (place->second.kept) {
    Json last = *place->second.kept;
    last["metadata"]["resourceVersion"] = std::to_string(version_);
    watch_events_[plural].events.push_back({true, std::make_shared<const Json>(std::move(last))});
  }
  objects_.erase(place);
  remember();
}

size_t FakeCluster::happened(const std::string& plural) const {
  const auto found = watch_events_.find(plural);
  return found == watch_events_.end() ? 0 : found->second.forgotten + found->second.events.size();
}

const FakeCluster::Event& FakeCluster::event(const std::string& plural, size_t n) const {
  const WatchEvents& watched = watch_events_.at(plural);
  return watched.events.at(n - watched.forgotten);
}

void FakeCluster::forget(const std::string& plural, size_t n) {
  const auto found = watch_events_.find(plural);
  if (found == watch_events_.end() || n <= found->second.forgotten) return;
  auto& [forgotten, events] = found->second;
  events.erase(events.begin(), events.begin() + static_cast<std::ptrdiff_t>(n - forgotten));
  forgotten = n;
}

/// Makes a uid from the count of objects of this name, so that simulations with different histories use the same uids.
std::string FakeCluster::new_uid(const std::string& plural, const std::string& name) {
  const std::string id = plural + "/" + name;
  return "uid-" + id + "-" + std::to_string(++made_[id]);
}

std::vector<k8s::ObjectPtr> FakeCluster::watched(const std::string& plural) const {
  std::vector<k8s::ObjectPtr> out;
  for (auto at = objects_.lower_bound({plural, {}}); at != objects_.end() && at->first.first == plural; ++at) {
    if (at->second.kept) out.push_back(at->second.kept);
  }
  return out;
}

std::vector<k8s::ObjectPtr> FakeCluster::list(const std::string& plural) const {
  std::vector<k8s::ObjectPtr> out;
  for (auto at = objects_.lower_bound({plural, {}}); at != objects_.end() && at->first.first == plural; ++at)
    out.push_back(at->second.object);
  return out;
}

void FakeCluster::put(const char* plural, Json object, bool is_new) {
  if (is_new) object["metadata"]["uid"] = new_uid(plural, k8s::key_of(object).name);
  store(plural, std::move(object));
}

void FakeCluster::put_map(const std::string& name, const Json& data) {
  Json map{{"metadata", {{"name", name}, {"namespace", "ns"}}}, {"data", data}};
  if (const Json* present = find("configmaps", name)) {
    map["metadata"]["uid"] = k8s::uid_of(*present);
    store("configmaps", std::move(map));
  } else {
    put("configmaps", std::move(map));
  }
}

void FakeCluster::remove_map(const std::string& name) { drop("configmaps", {"ns", name}); }

std::vector<Json> FakeCluster::with_role(const std::string& plural, const std::string& role) const {
  std::vector<Json> out;
  for (const Json& object : all(plural)) {
    if (k8s::label_of(object, label::role) == role) out.push_back(object);
  }
  return out;
}

void FakeCluster::apply(const Json& model) {
  if (!find("parallelmodels", model_name)) {
    Json made = model;
    made["metadata"]["generation"] = 1;
    put("parallelmodels", made);
    return;
  }
  edit([&](Json& present) { present["spec"] = model["spec"]; });
}

void FakeCluster::edit(const std::function<void(Json&)>& change) {
  Json model = this->model();
  const Json spec = model["spec"];
  change(model);
  if (model["spec"] != spec) model["metadata"]["generation"] = model["metadata"]["generation"].get<int>() + 1;
  store("parallelmodels", std::move(model));
}

void FakeCluster::remove_model() { drop("parallelmodels", {"ns", model_name}); }

void FakeCluster::change_pod(const std::string& name, const std::function<void(Json&)>& change) {
  Json pod = *find("pods", name);
  change(pod);
  store("pods", std::move(pod));
}

void FakeCluster::show_devices(int count) {
  Json node = *find("nodes", "node-a");
  node["status"]["allocatable"]["nvidia.com/gpu"] = std::to_string(count);
  store("nodes", std::move(node));
}

void FakeCluster::delete_pod(const std::string& name) {
  Json pod = *find("pods", name);
  pod["metadata"]["deletionTimestamp"] = k8s::format_time(now_);
  store("pods", std::move(pod));
}

std::vector<Json> FakeCluster::all(const std::string& plural) const {
  std::vector<Json> out;
  for (const auto& object : list(plural)) out.push_back(*object);
  return out;
}

const Json* FakeCluster::find(const std::string& plural, const std::string& name) const {
  auto place = objects_.find({plural, Key{"ns", name}});
  if (place == objects_.end()) place = objects_.find({plural, Key{"", name}});
  return place == objects_.end() ? nullptr : place->second.object.get();
}

std::vector<std::string> FakeCluster::pod_names() const {
  std::vector<std::string> out;
  for (const auto& pod : list("pods")) out.push_back(k8s::key_of(*pod).name);
  return out;
}

const Json* FakeCluster::condition(const std::string& type) const {
  return k8s::find_condition(op::at(model(), "/status/conditions"), type);
}
std::string FakeCluster::reason(const std::string& type) const {
  return condition(type) ? k8s::string_at(*condition(type), "/reason") : "";
}
bool FakeCluster::is_true(const std::string& type) const {
  return k8s::condition_is_true(op::at(model(), "/status/conditions"), type);
}

bool FakeCluster::waits() const {
  if (!find("parallelmodels", model_name)) return false;
  if (reason("Ready") == "BackingOff" || reason("Scheduled") == "ReplicaWaiting") return true;
  const auto surges = [&](const Json& replica) {  // a move off a node without room waits for ever
    const auto since = k8s::parse_time(k8s::string_at(replica, "/surgeSince"));
    return replica.contains("previousGeneration") && since && *since + std::chrono::minutes(1) > now_;
  };
  const Json& replicas = op::at(model(), "/status/replicaStatuses");
  return replicas.is_array() && !is_true("Stalled") && std::any_of(replicas.begin(), replicas.end(), surges);
}

Json model_named(const std::string& name, int devices, int replicas) {
  return {{"apiVersion", "parallelmodel.dev/v1alpha1"},
          {"kind", "ParallelModel"},
          {"metadata", {{"name", name}, {"namespace", "ns"}}},
          {"spec",
           {{"model", {{"source", "pvc://models/gpt2"}}},
            {"devices", {{"count", devices}, {"type", "CPU"}, {"resource", "nvidia.com/gpu"}}},
            {"resources", {{"memory", "4Gi"}, {"cpu", 2}}},
            {"serving", {{"maxSequenceLength", 256}, {"maxConcurrency", 4}, {"maxQueue", 16}}},
            {"replicas", replicas}}}};
}

Json router_to(const std::string& canary) {
  return {{"inferencePool", {{"endpointPicker", {{"name", "m-epp"}, {"port", 9002}, {"failureMode", "FailOpen"}}}}},
          {"httpRoute",
           {{"gateways", Json::array({{{"name", "front"}, {"namespace", "infra"}}})},
            {"hostnames", {"chat.example.com"}},
            {"weight", 90},
            {"canaries", Json::array({{{"name", canary}, {"weight", 10}}})}}}};
}

Json small_metadata() {
  static const Json metadata = to_json(pm::test::decoder({.layers = 2,
                                                          .hidden = 512,
                                                          .heads = 4,
                                                          .kv_heads = 4,
                                                          .head_dim = 128,
                                                          .ffn = 2048,
                                                          .vocab = 1000,
                                                          .positions = 512}));
  return metadata;
}

Settings settings() { return {.worker_image = "parallelmodel-worker:1", .ns = "system"}; }

}  // namespace pm::op::test
