// The few API requests that the operator makes.
#pragma once
#include <optional>

#include "controller/core/object.h"
#include "controller/operator/names.h"

namespace pm::op {

/// The Resource of an object that a builder made, by its kind. Throws std::logic_error for a kind that no builder makes.
const k8s::Resource& resource_of(const Json& object);

k8s::Request create(const Json& object);
k8s::Request get(const k8s::Request& same_object);
/// Server-side apply of the fields that we own, to exactly the live object: a successor of the same name is left alone.
k8s::Request apply(Json object, const Json& live);
/// Deletes exactly this object. `grace` in seconds; nothing: the pod's own.
k8s::Request remove(const k8s::Resource&, const Json& object, std::optional<int> grace = std::nullopt);
/// Writes a merge patch to status, refused when the model has changed since.
k8s::Request patch_status(const Json& model, Json status_patch);
/// Sets annotations of an object, refused when it has changed since.
k8s::Request annotate(const k8s::Resource&, const Json& object, const Json& annotations);
/// The Events about one pod.
k8s::Request events_of_pod(const k8s::Key& pod);

}  // namespace pm::op
