// What the inspect pod found. Its termination message comes from a container that read untrusted files: it is parsed as hostile input.
#pragma once
#include <optional>
#include <string>

#include "controller/operator/pod_state.h"
#include "planner/facts.h"

namespace pm::op {

struct Inspection {
  std::optional<Facts> facts;
  /// Without facts: Inspecting while it runs, ClaimNotFound while the claim is missing, else why it failed (ModelUnreadable,
  /// UnknownArchitecture, UnsupportedPolicy, SourceUnreachable, RevisionNotFound, AuthFailed, InspectFailed).
  std::string reason, message;
  bool failed = false;                            ///< it ended without facts
  std::optional<Wait> wait;                       ///< why it does not run yet
  std::optional<k8s::WallTime> finished;
};

Inspection inspection_of(const PodState&);

}  // namespace pm::op
