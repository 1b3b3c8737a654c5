// The few API requests that the operator makes.
#pragma once
#include <optional>

#include "controller/core/object.h"
#include "controller/operator/names.h"

namespace pm::op {

/// The Resource of an object that a builder made, by its kind. Throws std::logic_error for a kind that no builder makes.
const k8s::Resource& resource_of(const Json& object);

/// "Kind/name".
std::string id_of(const Json& object);

k8s::Request create(const Json& object);
k8s::Request get(const k8s::Request& same_object);
/// The object of the name, from the API server and not from a store.
k8s::Request get(const Json& object);
/// Server-side apply of all fields that are ours to exactly the live object: what others added stays, a successor of the same name is left alone.
k8s::Request mend(const Json& wanted, const Json& live);
/// To be sent before the first mend(). What was created belongs to our name as an update, and an apply does not let go of that: the old port of a
/// Service would stand beside the new one (422). This gives it to our applies, as client-go's csaupgrade does. Nothing when it is theirs already.
std::optional<k8s::Request> take_over(const Json& live);
/// A node, for what must not be decided on an old view of it.
k8s::Request get_node(const std::string& name);
/// Deletes exactly this object. `grace` in seconds; nothing: the pod's own.
k8s::Request remove(const k8s::Resource&, const Json& object, std::optional<int> grace = std::nullopt);
/// Writes a merge patch to status, refused when the model has changed since.
k8s::Request patch_status(const Json& model, Json status_patch);
/// Sets annotations of an object, refused when it has changed since.
k8s::Request annotate(const k8s::Resource&, const Json& object, const Json& annotations);
/// The Events about one pod.
k8s::Request events_of_pod(const k8s::Key& pod);

}  // namespace pm::op
