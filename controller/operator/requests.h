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
/// Gives the live object our labels and spec; what others added stays, and a successor of the same name is left alone. A merge patch, not
/// server-side apply: that merges the ports of a Service by number, so a changed port would stand beside the one that creation made (422).
k8s::Request mend(const Json& wanted, const Json& live);
/// Deletes exactly this object. `grace` in seconds; nothing: the pod's own.
k8s::Request remove(const k8s::Resource&, const Json& object, std::optional<int> grace = std::nullopt);
/// Writes a merge patch to status, refused when the model has changed since.
k8s::Request patch_status(const Json& model, Json status_patch);
/// Sets annotations of an object, refused when it has changed since.
k8s::Request annotate(const k8s::Resource&, const Json& object, const Json& annotations);
/// The Events about one pod.
k8s::Request events_of_pod(const k8s::Key& pod);

}  // namespace pm::op
