// A request to the API server as a value: built by pure code, sent by controller/client, compared by tests.
#pragma once
#include <map>
#include <optional>
#include <string>
#include <variant>

#include "controller/core/json.h"

namespace pm::k8s {

/// A kind of object and where the API server keeps it.
struct Resource {
  std::string group;        ///< "" for core
  std::string version;
  std::string plural;
  std::string kind;
  bool namespaced = true;
  bool operator==(const Resource&) const = default;
};

inline const Resource Pods{"", "v1", "pods", "Pod"};
inline const Resource Services{"", "v1", "services", "Service"};
inline const Resource ConfigMaps{"", "v1", "configmaps", "ConfigMap"};
inline const Resource PersistentVolumeClaims{"", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"};
inline const Resource Nodes{"", "v1", "nodes", "Node", false};
inline const Resource PodDisruptionBudgets{"policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"};
inline const Resource Leases{"coordination.k8s.io", "v1", "leases", "Lease"};
inline const Resource Events{"events.k8s.io", "v1", "events", "Event"};

enum class Verb { Get, List, Create, Apply, MergePatch, Delete };

/// One API call. Bodies are whole objects for Create and Apply, patches for MergePatch, DeleteOptions for Delete.
struct Request {
  Verb verb = Verb::Get;
  Resource resource;
  std::string ns, name;
  std::string subresource;                  ///< "status" or ""
  Json body;
  std::string field_manager = "parallelmodel-controller";
  bool force = false;                       ///< Apply only
  std::map<std::string, std::string> query; ///< further parameters: labelSelector, fieldSelector, limit, continue, watch, ...
  bool operator==(const Request&) const = default;
};

/// Classes of failure that callers treat differently (reference/controller.md 3.2).
enum class Failure { NotFound, AlreadyExists, Conflict, Gone, TooManyRequests, Invalid, Unauthorized, Forbidden, Transient, Permanent };

struct ApiError {
  Failure failure = Failure::Transient;
  int code = 0;                             ///< HTTP; 0: no answer (the write may have happened)
  std::string reason, message;              ///< of the Status object
  double retry_after = 0;                   ///< seconds; 0: not given
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
