// SPDX-License-Identifier: Apache-2.0
// The projectors that make tokens of a decoder from the states of a tower of images.
#pragma once
#include <string>
#include <vector>

#include "worker/policy/binder.h"
#include "worker/policy/spec/stack.h"

namespace pm::policy {

/// Builds projectors of the states of `stack` to the width of a decoder. Each reads all tensors of its view; names that
/// are not loaded are added to `not_loaded`. Throws Error{ModelUnreadable} for tensors that are missing, do not fit or
/// are read by nothing.
struct ProjectorBuilder {
  const Node& policy;
  const Stack& stack;
  const Variables& variables;
  int64_t width;

  ImageProjector final(const CheckpointView&, const Node& section, std::vector<std::string>& not_loaded) const;
  /// Projectors of the states behind these layers. In the names that `section` spells, {l} is the number of each.
  std::vector<DeepProjector> deep(const CheckpointView&, const Node& section, const std::vector<int64_t>& layers,
                                  std::vector<std::string>& not_loaded) const;
};

}  // namespace pm::policy
