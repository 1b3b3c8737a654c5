// A user's own policy: what its ConfigMap holds, and the copy of it that pods mount.
#pragma once
#include <optional>
#include <string>

#include "controller/operator/spec.h"

namespace pm::op {

/// As pods see it: an immutable ConfigMap of ours, named after the contents. The user's own may change or go at any moment; a pod, also one
/// that is made again years later, never reads another policy than the one that its plan was made with.
struct Policy {
  std::string copy;                     ///< name of the copy
  std::string file;                     ///< its key, and so the name of the file inside a pod
};

/// What spec.model.policyRef stands for just now.
struct PolicyAnswer {
  std::optional<Policy> policy;
  std::string text;                     ///< contents, with a policy
  std::string missing;                  ///< what is missing, without one
};

/// Larger policies are refused: the controller keeps every copy in memory. The built-in ones have at most 12 KiB.
inline constexpr size_t most_policy_bytes = 128 << 10;

/// Reads the API server's answer for the user's ConfigMap: the object, NotFound or Forbidden.
PolicyAnswer policy_of(const Owner&, const PolicyRef&, const k8s::Response&);
/// The immutable copy.
Json policy_copy(const Owner&, const PolicyAnswer&);
/// Asks for the user's ConfigMap.
k8s::Request get_policy(const Owner&, const PolicyRef&);

/// "COPY/FILE", as the plan ConfigMap remembers it; nothing for what is no such text.
std::string to_text(const std::optional<Policy>&);
std::optional<Policy> policy_from_text(const std::string&);
/// Where the worker finds it.
std::string path_of(const Policy&);
/// Gives a pod the copy; its argument --policy is the caller's.
void mount_policy(Json& pod, const Policy&);

}  // namespace pm::op
