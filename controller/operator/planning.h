// From a spec to a stored plan: inspect the checkpoint, decide, store. One step at a time, each from what the snapshot shows.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/desired.h"
#include "controller/operator/inspection.h"

namespace pm::op {

struct Planning {
  std::optional<StoredPlan> plan;                 ///< for the present wishes
  /// Without a plan: reason and message of Planned=False.
  std::string reason, message;
  std::vector<Rejected> rejected;
  bool waiting = false;                           ///< may still get better by itself: not a reason to be Stalled
  std::optional<Wait> wait;                       ///< of the inspect pod
  std::optional<k8s::Request> action;             ///< to send now; the rest is then what was known before it
  std::optional<k8s::WallTime> wake;              ///< look again then
};

/// A failed inspection is repeated after this time, or at once when the spec changes.
inline constexpr std::chrono::minutes inspect_again{5};

Planning planning_of(const Owner&, const Spec&, const Snapshot&, const Settings&);

/// ConfigMaps and inspect pods that nothing needs any more, once there is a plan: the first to delete.
std::optional<k8s::Request> superseded(const StoredPlan&, const Snapshot&);

}  // namespace pm::op
