// SPDX-License-Identifier: Apache-2.0
// Declares the API requests of the operator.
#pragma once
#include <optional>

#include "controller/core/object.h"
#include "controller/operator/api/names.h"

namespace pm::op {

/// Returns the Resource of an object that a builder made, by its kind. Throws std::logic_error for any other kind.
const k8s::Resource& resource_of(const Json& object);

/// Returns "Kind/name".
std::string id_of(const Json& object);

/// Returns true for an object whose controller has this uid.
bool is_controlled_by(const Json& object, const std::string& uid);
/// Says that an object with one of our names has another owner, and what to do.
std::string conflict_text(const std::string& what, const Json& object);

k8s::Request create(const Json& object);
k8s::Request get(const k8s::Request& same_object);
/// Reads the object of this name from the API server, not from a store.
k8s::Request get(const Json& object);
/// Sets the values of the spec that differ in exactly the live object, which may come from a store; nullopt when more
/// than such values differ.
std::optional<k8s::Request> set_values(const Json& wanted, const Json& live);
/// Applies all our fields to exactly the live object (server-side apply). Fields of others stay; a later object of the
/// same name is not touched.
k8s::Request server_side_apply(const Json& wanted, const Json& live);
/// Migrates field ownership from Update to Apply, as client-go's csaupgrade does. It is sent before the first
/// server_side_apply(): fields of a created object belong to our manager as an update, which an apply does not release,
/// so the old port of a Service would stay beside the new one (422). Returns nullopt when that is done already.
std::optional<k8s::Request> take_over(const Json& live);
/// Reads a node, for decisions that a stale view must not make.
k8s::Request get_node(const std::string& name);
/// Deletes exactly this object. `grace` is in seconds; nullopt uses the grace period of the pod.
k8s::Request remove(const k8s::Resource&, const Json& object, std::optional<int> grace = std::nullopt);
/// Writes a merge patch to status. The API server refuses it when the model has changed since.
k8s::Request patch_status(const Json& model, Json status_patch);
/// Sets annotations of an object. The API server refuses it when the object has changed since.
k8s::Request annotate(const k8s::Resource&, const Json& object, const Json& annotations);
/// Lists the Events about one pod.
k8s::Request events_of_pod(const k8s::Key& pod);

}  // namespace pm::op
