// SPDX-License-Identifier: Apache-2.0
#include "fake_cluster.h"

#include <algorithm>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/api/spec.h"
#include "fake_pods.h"
#include "state_ids.h"

namespace pm::op::test {

using k8s::Key;

namespace {

void strip_status(Json& status) {
  status.erase("containerStatuses");
  for (const char* list : {"conditions", "replicaStatuses"}) {
    if (!status.contains(list)) continue;
    for (Json& entry : status[list]) {
      for (const char* key : {"lastTransitionTime", "restartTimes", "loadSeconds", "startupSeconds"}) entry.erase(key);
    }
  }
  for (const char* key : {"startup", "fetchSeconds"}) status.erase(key);
  if (status.contains("lastFailure")) status["lastFailure"].erase("time");
}

}  // namespace

Snapshot FakeCluster::snapshot_of(const Objects& objects) const {
  Snapshot out{.now = now_};
  out.probes = probes;
  out.nodes.emplace();
  if (const auto model = objects.find({"parallelmodels", Key{"ns", model_name}}); model != objects.end())
    out.model = model->second.kept;
  if (out.model) {
    for (const std::string& name : canary_names(*out.model)) {
      const auto canary = objects.find({"parallelmodels", Key{"ns", name}});
      out.canaries[name] = canary == objects.end() ? nullptr : canary->second.object;
    }
  }
  for (const auto& [where, stored] : objects) {
    const auto& object = stored.kept ? stored.kept : stored.object;
    if (where.first == "nodes") out.nodes->push_back(object);
    const auto owner = k8s::controller_of(*object);
    if (!out.model || !owner || owner->uid != k8s::uid_of(*out.model)) continue;
    if (where.first == "pods") out.pods.push_back(object);
    if (where.first == "configmaps") out.config_maps.push_back(object);
    if (where.first == "services") out.services.push_back(object);
    if (where.first == "poddisruptionbudgets") out.budgets.push_back(object);
  }
  return out;
}

Snapshot FakeCluster::stale_snapshot(size_t behind) const {
  return snapshot_of(history_[history_.size() - 1 - std::min(behind, history_.size() - 1)]);
}

std::vector<uint32_t> FakeCluster::numbers(StateIds& numbers, std::vector<int64_t>& ages) const {
  const int64_t now = std::chrono::duration_cast<std::chrono::seconds>(now_.time_since_epoch()).count();
  std::vector<uint32_t> out;
  out.reserve(objects_.size());
  for (const auto& [where, stored] : objects_) {
    if (!stored.number) {
      std::vector<int64_t> times;
      stored.number = numbers.of(where.first, stored.object, times);
      if (!times.empty()) stored.times = std::make_shared<const std::vector<int64_t>>(std::move(times));
    }
    out.push_back(stored.number);
    if (!stored.times) continue;
    for (int64_t time : *stored.times) ages.push_back(now - time);
  }
  return out;
}

bool FakeCluster::same_versions(const FakeCluster& other) const {
  return now_ == other.now_ && version_ == other.version_ && made_ == other.made_ &&
         std::equal(objects_.begin(), objects_.end(), other.objects_.begin(), other.objects_.end(),
                    [](const auto& a, const auto& b) {
                      return a.first == b.first &&
                             (a.second.object == b.second.object ||
                              k8s::version_of(*a.second.object) == k8s::version_of(*b.second.object));
                    });
}

Json FakeCluster::digest() const {
  Json out = Json::array();
  for (const auto& [where, stored] : objects_) {
    Json plain = *stored.object;
    Json& metadata = plain["metadata"];
    for (const char* key : {"uid", "resourceVersion", "creationTimestamp", "managedFields"}) metadata.erase(key);
    if (metadata.contains("annotations")) metadata["annotations"].erase(annotation::fetch_seconds);
    if (metadata.contains("ownerReferences")) metadata["ownerReferences"][0].erase("uid");
    if (plain.contains("status")) strip_status(plain["status"]);
    out.push_back({where.first, plain});
  }
  return out;
}

Json FakeCluster::shape() const {
  Json out = Json::object();
  for (const auto& [where, stored] : objects_) {
    const auto& [plural, key] = where;
    const auto& object = stored.object;
    if (plural == "pods")
      out["pods"].push_back({k8s::label_of(*object, label::role), k8s::label_of(*object, label::replica),
                             k8s::label_of(*object, label::node_rank), k8s::label_of(*object, label::pod_hash),
                             ended(*object)});
    else if (plural == "services")
      out[plural][key.name] = op::at(*object, "/spec/ports/0/port");  // defaults of the server differ after a patch
    else if (plural != "parallelmodels")
      out[plural][key.name] = {op::at(*object, "/spec"), op::at(*object, "/data")};
  }
  if (out.contains("pods")) std::sort(out["pods"].begin(), out["pods"].end());
  const Json* model = find("parallelmodels", model_name);
  const Json& status = model ? op::at(*model, "/status") : op::at(Json(), "/none");
  const Json generation = model ? op::at(*model, "/metadata/generation") : Json();  // begins again with a new object
  out["status"]["observes"] = op::at(status, "/observedGeneration") == generation;
  for (const char* key : {"replicas", "readyReplicas", "updatedReplicas", "plan", "endpoint"})
    out["status"][key] = op::at(status, std::string("/") + key);
  for (const Json& condition : op::at(status, "/conditions"))
    out["status"]["conditions"][k8s::string_at(condition, "/type")] = {condition["status"], condition["reason"],
                                                                       condition["observedGeneration"] == generation};
  return out;
}

}  // namespace pm::op::test
