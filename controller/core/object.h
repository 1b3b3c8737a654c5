// SPDX-License-Identifier: Apache-2.0
// Reads and builds the parts that all Kubernetes objects share: names, labels, owner references.
#pragma once
#include <compare>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "controller/core/request.h"

namespace pm::k8s {

/// Names an object within one Resource; ns is "" for what has no namespace.
struct Key {
  std::string ns, name;
  auto operator<=>(const Key&) const = default;
};
std::string to_string(const Key&);  ///< "ns/name", or "name"

/// An object that many threads read and nobody changes.
using ObjectPtr = std::shared_ptr<const Json>;

/// "group/version", or "v1" for core.
std::string api_version_of(const Resource&);

/// The value at a JSON pointer (RFC 6901), or null. Every reader of objects goes through here, so it makes no copy of
/// the pointer's parts.
const Json* find_at(const Json& object, std::string_view pointer);

/// All of these answer "" (or nothing) when the field is absent or of the wrong type; foreign objects never make them
/// throw.
std::string string_at(const Json& object, std::string_view pointer);  ///< e.g. "/spec/nodeName"
Key key_of(const Json& object);
std::string uid_of(const Json& object);
std::string version_of(const Json& object);  ///< metadata.resourceVersion
std::string label_of(const Json& object, const std::string& name);
bool being_deleted(const Json& object);  ///< metadata.deletionTimestamp is set

struct OwnerReference {
  std::string api_version, kind, name, uid;
  bool operator==(const OwnerReference&) const = default;
};
/// The reference with controller=true, of which the API server allows one.
std::optional<OwnerReference> controller_of(const Json& object);
/// A reference to `owner` (which must have its name and uid) with controller and blockOwnerDeletion true.
Json owner_reference(const Resource& resource, const Json& owner);

/// Orders two resourceVersions of the same resource: -1, 0, 1. They are decimal numbers of any length; nothing when one
/// is not. Source: apimachinery/pkg/util/resourceversion.
std::optional<int> compare_versions(const std::string& a, const std::string& b);

}  // namespace pm::k8s
