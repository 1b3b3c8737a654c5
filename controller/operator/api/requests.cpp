// SPDX-License-Identifier: Apache-2.0
#include "controller/operator/api/requests.h"

#include <stdexcept>

#include "controller/operator/api/json_patch.h"
#include "controller/operator/api/object_text.h"

namespace pm::op {

using k8s::Request;
using k8s::Verb;

const k8s::Resource& resource_of(const Json& object) {
  const std::string kind = k8s::string_at(object, "/kind");
  for (const k8s::Resource* resource :
       {&k8s::pods_resource, &k8s::services_resource, &k8s::config_maps_resource, &k8s::pod_disruption_budgets_resource,
        &k8s::persistent_volume_claims_resource, &pod_monitors_resource, &http_routes_resource,
        &inference_pools_resource, &network_policies_resource, &claim_templates_resource}) {
    if (resource->kind == kind) return *resource;
  }
  for (const k8s::Resource& resource : pod_group_resources) {
    if (resource.kind == kind && k8s::api_version_of(resource) == k8s::string_at(object, "/apiVersion"))
      return resource;
  }
  throw std::logic_error("no builder makes a " + kind);
}

std::string id_of(const Json& object) { return k8s::string_at(object, "/kind") + "/" + k8s::key_of(object).name; }

bool is_controlled_by(const Json& object, const std::string& uid) {
  const auto controller = k8s::controller_of(object);
  return controller && controller->uid == uid;
}

std::string conflict_text(const std::string& what, const Json& object) {
  const auto controller = k8s::controller_of(object);
  return what + " exists and is not owned by this ParallelModel" +
         (controller ? " but of " + controller->kind + " " + controller->name : "") +
         "; delete it, or give the ParallelModel another name";
}

namespace {
Request about(Verb verb, const k8s::Resource& resource, const Json& object) {
  const k8s::Key key = k8s::key_of(object);
  return {.verb = verb, .resource = resource, .ns = key.ns, .name = key.name};
}
}  // namespace

Request create(const Json& object) {
  Request request = about(Verb::Create, resource_of(object), object);
  request.body = object;
  return request;
}

Request get(const Request& same_object) {
  return {.verb = Verb::Get, .resource = same_object.resource, .ns = same_object.ns, .name = same_object.name};
}

Request get(const Json& object) { return about(Verb::Get, resource_of(object), object); }

std::optional<Request> set_values(const Json& wanted, const Json& live) {
  if (!covers(at(live, "/metadata/labels"), wanted["metadata"]["labels"]) ||
      annotation_of(wanted, annotation::wanted) != annotation_of(live, annotation::wanted))
    return std::nullopt;
  auto values = changed_values(at(live, "/spec"), wanted["spec"]);
  if (!values) return std::nullopt;
  Request request = about(Verb::MergePatch, resource_of(wanted), wanted);
  request.body = {{"metadata", {{"uid", k8s::uid_of(live)}}}, {"spec", std::move(*values)}};
  return request;
}

Request server_side_apply(const Json& wanted, const Json& live) {
  Request request = about(Verb::Apply, resource_of(wanted), wanted);
  request.force = true;
  request.body = wanted;  // an apply removes fields that it no longer names, the owner reference too
  request.body["metadata"]["uid"] = k8s::uid_of(live);
  return request;
}

std::optional<Request> take_over(const Json& live) {
  Request request = about(Verb::MergePatch, resource_of(live), live);
  const auto field = live["metadata"].find("managedFields");
  if (field == live["metadata"].end() || !field->is_array()) return std::nullopt;
  Json entries = Json::array(), ours = Json::object(), updates = Json::object();
  for (const Json& entry : *field) {
    const bool mine =
        k8s::string_at(entry, "/manager") == request.field_manager && k8s::string_at(entry, "/subresource").empty();
    if (!mine)
      entries.push_back(entry);
    else
      (k8s::string_at(entry, "/operation") == "Update" ? updates : ours) = entry;
  }
  if (updates.empty()) return std::nullopt;
  updates["operation"] = "Apply";
  if (ours.contains("fieldsV1") && updates.contains("fieldsV1"))
    updates["fieldsV1"].update(ours["fieldsV1"], true);  // sets of fields are nested objects
  entries.push_back(std::move(updates));
  request.body = {{"metadata",
                   {{"uid", k8s::uid_of(live)},
                    {"resourceVersion", k8s::version_of(live)},
                    {"managedFields", std::move(entries)}}}};
  return request;
}

Request get_node(const std::string& name) { return {.verb = Verb::Get, .resource = k8s::nodes_resource, .name = name}; }

Request remove(const k8s::Resource& resource, const Json& object, std::optional<int> grace) {
  Request request = about(Verb::Delete, resource, object);
  request.body = {{"apiVersion", "v1"}, {"kind", "DeleteOptions"}, {"preconditions", {{"uid", k8s::uid_of(object)}}}};
  if (grace) request.body["gracePeriodSeconds"] = *grace;
  return request;
}

Request patch_status(const Json& model, Json status_patch) {
  Request request = about(Verb::MergePatch, parallel_models_resource, model);
  request.subresource = "status";
  request.body = {{"metadata", {{"resourceVersion", k8s::version_of(model)}}}, {"status", std::move(status_patch)}};
  return request;
}

Request annotate(const k8s::Resource& resource, const Json& object, const Json& annotations) {
  Request request = about(Verb::MergePatch, resource, object);
  request.body = {{"metadata", {{"resourceVersion", k8s::version_of(object)}, {"annotations", annotations}}}};
  return request;
}

Request events_of_pod(const k8s::Key& pod) {
  return {.verb = Verb::List,
          .resource = k8s::events_resource,
          .ns = pod.ns,
          .query = {{"fieldSelector", "regarding.kind=Pod,regarding.name=" + pod.name}, {"limit", "100"}}};
}

}  // namespace pm::op
