// SPDX-License-Identifier: Apache-2.0
// Declares the result of the inspect pod. Its termination message comes from a container that read untrusted files, so
// it is parsed as hostile input.
#pragma once
#include <optional>
#include <string>

#include "controller/operator/observed/pod_state.h"
#include "planner/model_metadata.h"

namespace pm::op {

struct Inspection {
  std::optional<ModelMetadata> metadata;
  /// Without metadata: Inspecting while it runs, ClaimNotFound while the PVC is missing, else the reason of the failure
  /// (ModelUnreadable, UnknownArchitecture, UnsupportedPolicy, SourceUnreachable, RevisionNotFound, AuthFailed,
  /// InspectFailed).
  std::string reason, message;
  bool failed = false;       ///< it ended without metadata
  std::optional<Wait> wait;  ///< why it does not run yet
  std::optional<k8s::WallTime> finished;
};

Inspection parse_inspection(const PodState&);

}  // namespace pm::op
