// SPDX-License-Identifier: Apache-2.0
// Declares a user's policy: the content of its ConfigMap, and the immutable copy that pods mount.
#pragma once
#include <optional>
#include <string>

#include "controller/operator/api/spec.h"

namespace pm::op {

/// The copy that pods mount: an immutable ConfigMap of the operator, named after its content. The ConfigMap of the user
/// may change or disappear at any time; every pod of a plan reads the policy that the plan was made with.
struct Policy {
  std::string copy;  ///< name of the copy
  std::string file;  ///< its key, which is the file name inside a pod
};

/// What spec.model.policyRef currently resolves to.
struct PolicyAnswer {
  std::optional<Policy> policy;
  std::string text;     ///< contents, with a policy
  std::string missing;  ///< what is missing, without one
};

/// Larger policies are refused, for the controller holds every copy in memory. The built-in ones have at most 12 KiB.
inline constexpr size_t max_policy_bytes = 128 << 10;

/// Parses the response for the user's ConfigMap: the object, NotFound or Forbidden.
PolicyAnswer parse_policy(const Owner&, const PolicyRef&, const k8s::Response&);
/// Builds the immutable copy.
Json policy_copy(const Owner&, const PolicyAnswer&);
/// Reads the user's ConfigMap.
k8s::Request get_policy(const Owner&, const PolicyRef&);

/// Converts to and from "COPY/FILE", as the plan ConfigMap stores it. Parsing returns nullopt for any other text.
std::string to_text(const std::optional<Policy>&);
std::optional<Policy> policy_from_text(const std::string&);
/// Returns the path at which the worker reads it.
std::string path_of(const Policy&);
/// Mounts the copy in a pod. The caller adds the argument --policy.
void mount_policy(Json& pod, const Policy&);

}  // namespace pm::op
