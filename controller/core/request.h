// SPDX-License-Identifier: Apache-2.0
// Defines a request to the API server as a value that pure code builds, controller/client sends and tests compare.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "controller/core/json.h"

namespace pm::k8s {

/// A kind of object and its path in the API.
struct Resource {
  std::string group;  ///< "" for core
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  bool operator==(const Resource&) const = default;
};

inline const Resource pods_resource{"", "v1", "pods", "Pod"};
inline const Resource services_resource{"", "v1", "services", "Service"};
inline const Resource config_maps_resource{"", "v1", "configmaps", "ConfigMap"};
inline const Resource persistent_volume_claims_resource{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"};
inline const Resource nodes_resource{"", "v1", "nodes", "Node", false};
inline const Resource pod_disruption_budgets_resource{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"};
inline const Resource leases_resource{"coordination.k8s.io", "v1", "leases", "Lease"};
inline const Resource events_resource{"events.k8s.io", "v1", "events", "Event"};

enum class Verb { Get, List, Create, Apply, MergePatch, Delete };

/// One API call. Bodies are whole objects for Create and Apply, patches for MergePatch, DeleteOptions for Delete.
struct Request {
  Verb verb = Verb::Get;
  Resource resource;
  std::string ns, name;
  std::string subresource;  ///< "status" or ""
  Json body;
  std::string field_manager = "parallelmodel-controller";
  bool force = false;  ///< Apply only
  std::map<std::string, std::string>
      query;  ///< further parameters: labelSelector, fieldSelector, limit, continue, watch, ...
  bool operator==(const Request&) const = default;
};

/// Classes of failures that callers treat differently.
enum class Failure {
  NotFound,
  AlreadyExists,
  Conflict,
  Gone,
  TooManyRequests,
  Invalid,
  Unauthorized,
  Forbidden,
  Transient,
  Permanent
};

struct ApiError {
  Failure failure = Failure::Transient;
  int code = 0;                 ///< HTTP; 0: no answer (the write may have happened)
  std::string reason, message;  ///< from the Status object
  double retry_after = 0;       ///< seconds; 0: not given
  bool operator==(const ApiError&) const = default;
};

/// The object of a successful call, or the error.
using Response = std::variant<Json, ApiError>;

bool failed(const Response&);
/// The object; throws std::bad_variant_access on an error: ask failed() first.
const Json& object_of(const Response&);
const ApiError& error_of(const Response&);

/// "/apis/policy/v1/namespaces/ns/poddisruptionbudgets/name/status?fieldManager=..", every part percent-encoded.
/// Throws std::invalid_argument when the request names no object where its verb needs one.
std::string path_of(const Request&);

}  // namespace pm::k8s
