// SPDX-License-Identifier: Apache-2.0
#include "fake_cluster.h"

#include <algorithm>
#include <set>
#include <utility>

#include "controller/operator/api/names.h"
#include "controller/operator/api/object_text.h"
#include "controller/operator/children/optional_children.h"
#include "fake_pods.h"

namespace pm::op::test {

using k8s::ApiError;
using k8s::Failure;
using k8s::Key;
using k8s::Request;
using k8s::Response;
using k8s::Verb;

namespace {

const char* verb_name(Verb verb) {
  switch (verb) {
    case Verb::Get:
      return "Get";
    case Verb::List:
      return "List";
    case Verb::Create:
      return "Create";
    case Verb::Apply:
      return "Apply";
    case Verb::MergePatch:
      return "MergePatch";
    case Verb::Delete:
      return "Delete";
  }
  return "?";
}

ApiError error(Failure failure, int code, const std::string& message) { return {failure, code, "", message, 0}; }

/// Names ports as managedFields do: {"8000": {}}.
Json ports_of(const Json& service) {
  Json out = Json::object();
  for (const Json& port : op::at(service, "/spec/ports")) out[port["port"].dump()] = Json::object();
  return out;
}

}  // namespace

Response FakeCluster::send(const Request& request) {
  ++requests;
  if (logs)
    log.push_back(std::string(verb_name(request.verb)) + " " + request.resource.plural + " " + request.name +
                  (request.subresource.empty() ? "" : "/" + request.subresource));
  (void)k8s::path_of(request);  // throws for a request that names no object
  if (refuse) {
    if (auto refusal = refuse(request)) return *refusal;
  }
  const int64_t before = version_;
  Response response = answer(request);
  if (version_ != before) ++writes;
  return response;
}

Response FakeCluster::answer(const Request& request) {
  if (optional_child(request.resource) && request.resource != network_policies_resource && !serves_optional)
    return error(Failure::NotFound, 404, "the server could not find the requested resource");
  if (request.resource.plural == "podgroups" && !pod_group_versions.contains(request.resource.version))
    return error(Failure::NotFound, 404, "the server could not find the requested resource");
  if (request.resource.group == "resource.k8s.io" && !serves_devices)
    return error(Failure::NotFound, 404, "the server could not find the requested resource");
  const auto place = objects_.find({request.resource.plural, Key{request.ns, request.name}});
  const ApiError absent =
      error(Failure::NotFound, 404, request.resource.plural + " \"" + request.name + "\" not found");
  switch (request.verb) {
    case Verb::Create:
      return create(request);
    case Verb::Apply:
      return place == objects_.end() ? Response(error(Failure::Conflict, 409, "uid mismatch: there is none"))
                                     : apply(request, *place->second.object);
    case Verb::Delete:
      return erase(request);
    case Verb::List:
      if (request.resource.group == "resource.k8s.io") return Json{{"items", all(request.resource.plural)}};
      return Json{{"items", Json::array({{{"reason", "Scheduled"}, {"note", "assigned"}},
                                         {{"reason", kubelet_says}, {"note", mount_failure + worker_mount_failure}}})}};
    case Verb::Get:
      return place == objects_.end() ? Response(absent) : Response(*place->second.object);
    case Verb::MergePatch:
      return place == objects_.end() ? Response(absent) : patch(request, *place->second.object);
  }
  return error(Failure::Permanent, 400, "no such verb");
}

Response FakeCluster::create(const Request& request) {
  const Key key = k8s::key_of(request.body);
  if (objects_.contains({request.resource.plural, key})) return error(Failure::AlreadyExists, 409, "already exists");
  Json object = request.body;
  object["metadata"]["uid"] = new_uid(request.resource.plural, key.name);
  object["metadata"]["creationTimestamp"] = k8s::format_time(now_);
  if (request.resource == k8s::pods_resource) {
    if (pod_group_versions.empty()) object["spec"].erase("schedulingGroup");
    check_pod(object);
    object["status"]["phase"] = "Pending";
    claim_devices(object);
  }
  if (request.resource == k8s::services_resource) {
    for (Json& port : object["spec"]["ports"]) port["protocol"] = "TCP";  // a default of the server
  }
  if (request.resource == k8s::services_resource || request.resource == k8s::pod_disruption_budgets_resource ||
      request.resource == pod_monitors_resource) {
    object["metadata"]["managedFields"] = Json::array(
        {{{"manager", request.field_manager}, {"operation", "Update"}, {"fieldsV1", {{"ports", ports_of(object)}}}}});
  }
  return store(request.resource.plural, std::move(object));
}

/// Applies a merge patch with the precondition of a resourceVersion. A write without effect changes nothing.
Response FakeCluster::patch(const Request& request, const Json& object) {
  const std::string expected = k8s::version_of(request.body);
  if (!expected.empty() && expected != k8s::version_of(object))
    return error(Failure::Conflict, 409, "the object has been modified");
  const std::string uid = k8s::string_at(request.body, "/metadata/uid");
  if (!uid.empty() && uid != k8s::uid_of(object))
    return error(Failure::Invalid, 422, "metadata.uid: Invalid value: field is immutable");
  Json body = request.body;
  if (request.subresource == "status") body = {{"status", body.value("status", Json::object())}};
  body.erase("metadata");
  for (const char* map : {"annotations", "labels", "managedFields"}) {
    if (request.body.contains("metadata") && request.body["metadata"].contains(map))
      body["metadata"][map] = request.body["metadata"][map];
  }
  Json next = object;
  next.merge_patch(body);
  if (undoes) undoes(next);
  if (next == object) return object;
  return store(request.resource.plural, std::move(next));
}

/// Server-side apply by one manager: ports merge by number, and those that its applies own and no longer name are
/// removed. Fields of a created object are owned as an update and stay until the ownership is migrated.
Response FakeCluster::apply(const Request& request, const Json& object) {
  if (k8s::string_at(request.body, "/metadata/uid") != k8s::uid_of(object))
    return error(Failure::Conflict, 409, "uid mismatch");
  Json next = object, body = request.body;
  Json* own = nullptr;
  for (Json& entry : next["metadata"]["managedFields"]) {
    if (entry["manager"] == request.field_manager && entry["operation"] == "Apply") own = &entry;
  }
  const Json owned = own ? (*own)["fieldsV1"]["ports"] : Json::object();
  if (!own)
    own = &next["metadata"]["managedFields"].emplace_back(
        Json{{"manager", request.field_manager}, {"operation", "Apply"}});
  const Json annotations = body["metadata"].value("annotations", Json::object());  // what it had applied is removed
  const Json applied = own->value("fieldsV1", Json::object()).value("annotations", Json::object());
  for (const auto& [key, value] : applied.items()) {
    if (!annotations.contains(key)) next["metadata"]["annotations"].erase(key);
  }
  (*own)["fieldsV1"] = {{"ports", ports_of(body)}};
  if (!annotations.empty()) {
    (*own)["fieldsV1"]["annotations"] = annotations;
    next["metadata"]["annotations"].update(annotations);
  }
  if (body["spec"].contains("ports")) {
    Json ports = Json::array();
    for (const Json& port : object["spec"]["ports"]) {
      const std::string number = port["port"].dump();
      if (!owned.contains(number) && !ports_of(body).contains(number)) ports.push_back(port);
    }
    for (Json port : body["spec"]["ports"]) port["protocol"] = "TCP", ports.push_back(std::move(port));
    std::set<std::string> names;
    for (const Json& port : ports) {
      if (!names.insert(k8s::string_at(port, "/name")).second)
        return error(Failure::Invalid, 422, "spec.ports: Duplicate value: " + port.dump());
    }
    body["spec"]["ports"] = std::move(ports);
  }
  next["spec"].merge_patch(body["spec"]);
  next["metadata"]["labels"].merge_patch(body["metadata"]["labels"]);
  if (!body["metadata"].contains("ownerReferences")) next["metadata"].erase("ownerReferences");
  if (undoes) undoes(next);
  if (next == object) return object;
  return store(request.resource.plural, std::move(next));
}

Response FakeCluster::erase(const Request& request) {
  const auto place = objects_.find({request.resource.plural, Key{request.ns, request.name}});
  if (place == objects_.end()) return error(Failure::NotFound, 404, "not found");
  if (k8s::string_at(request.body, "/preconditions/uid") != k8s::uid_of(*place->second.object))
    return error(Failure::Conflict, 409, "uid mismatch");
  if (request.resource == k8s::pods_resource) check_deletion(*place->second.object);
  const bool lives_on = request.resource == k8s::pods_resource && running(*place->second.object) &&
                        integer_at(request.body, "/gracePeriodSeconds") != 0;
  if (lives_on) {
    Json pod = *place->second.object;
    if (k8s::being_deleted(pod)) return pod;
    pod["metadata"]["deletionTimestamp"] = k8s::format_time(now_);
    return store("pods", std::move(pod));
  }
  const Json gone = *place->second.object;
  drop(request.resource.plural, place->first.second);
  return gone;
}

/// Makes the claim of a pod from its template, which must be there before the pod.
void FakeCluster::claim_devices(Json& pod) {
  const std::string name = k8s::string_at(pod, "/spec/resourceClaims/0/resourceClaimTemplateName");
  if (name.empty()) return;
  const Json* made_from = find("resourceclaimtemplates", name);
  if (!made_from) {
    violations.push_back(k8s::key_of(pod).name + " is made before its template " + name);
    return;
  }
  pod["status"]["claimed"] = op::at(*made_from, "/spec/spec/devices/requests/0/exactly/count");
}

/// Checks the invariants about generations when a pod is created.
void FakeCluster::check_pod(const Json& pod) {
  const std::string replica = k8s::label_of(pod, label::replica),
                    replica_generation = k8s::label_of(pod, label::replica_generation), name = k8s::key_of(pod).name;
  const Json* model = find("parallelmodels", model_name);
  const auto owner = k8s::controller_of(pod);
  if (replica.empty() || (model && owner && owner->uid != k8s::uid_of(*model)))
    return;  // owned by a deleted ParallelModel of this name: it is collected at once
  bool written = false;
  std::string previous;  // it serves beside its successor
  const Json& written_now = model ? op::at(*model, "/status/replicaStatuses") : taken;
  for (const Json* records : {&std::as_const(taken), &written_now}) {
    for (const Json& record : *records) {
      if (std::to_string(record["index"].get<int>()) != replica ||
          std::to_string(record["replicaGeneration"].get<int>()) != replica_generation)
        continue;
      written = true;
      if (record.contains("previousGeneration")) previous = record["previousGeneration"].dump();
    }
  }
  if (model && !written) violations.push_back(name + " is made before its generation is written");
  for (const auto& other : list("pods")) {
    const std::string theirs = k8s::label_of(*other, label::replica_generation);
    if (k8s::label_of(*other, label::replica) != replica || ended(*other) ||
        (k8s::being_deleted(*other) && dead(*other)))
      continue;
    if (theirs == replica_generation && k8s::label_of(*other, label::node_rank) == k8s::label_of(pod, label::node_rank))
      violations.push_back(name + " is made twice");
    if (theirs != replica_generation && theirs != previous)
      violations.push_back(name + " is made while " + k8s::key_of(*other).name + " lives");
  }
}

/// Records a violation when a desired replica that serves the current plan is deleted.
void FakeCluster::check_deletion(const Json& pod) {
  const std::string replica = k8s::label_of(pod, label::replica),
                    replica_generation = k8s::label_of(pod, label::replica_generation),
                    hash = k8s::label_of(pod, label::pod_hash);
  const Json* model = find("parallelmodels", model_name);
  const auto owner = k8s::controller_of(pod);
  if (replica.empty() || !model || !owner || owner->uid != k8s::uid_of(*model)) return;
  const bool unhealthy = at(pod, "/status/containerStatuses/0/allocatedResourcesStatus").is_array();
  if (unhealthy || parse_integer(replica).value_or(0) >= (*model)["spec"]["replicas"].get<int>() ||
      k8s::string_at(*model, "/status/plan/podHash") != hash)
    return;
  int64_t serving = 0;
  for (const auto& other : list("pods")) {
    if (k8s::label_of(*other, label::replica) != replica) continue;
    const std::string theirs = k8s::label_of(*other, label::replica_generation);
    if (parse_integer(theirs) > parse_integer(replica_generation)) return;
    const bool serves = running(*other) && !ended(*other) && !k8s::being_deleted(*other) && !dead(*other) &&
                        k8s::condition_is_true(op::at(*other, "/status/conditions"), "Ready");
    if (theirs == replica_generation && serves) ++serving;
  }
  if (parse_integer(annotation_of(pod, annotation::nodes)) == serving)
    violations.push_back(k8s::key_of(pod).name + " is deleted while its replica serves as it should");
}

}  // namespace pm::op::test
