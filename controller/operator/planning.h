// From a spec to a stored plan: inspect the checkpoint, decide, store. One step at a time, each from what the snapshot shows.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/desired.h"
#include "controller/operator/fetching.h"
#include "controller/operator/inspection.h"
#include "controller/operator/memo.h"

namespace pm::op {

struct Planning {
  std::shared_ptr<const StoredPlan> plan;         ///< for the present wishes; null: none
  std::string note;                               ///< beside a plan, for people
  std::optional<Wait> fetch;                      ///< beside a plan: its bytes are not on the claim yet, and no group is made before
  /// Without a plan: reason and message of Planned=False.
  std::string reason, message;
  std::vector<Rejected> rejected;
  bool waiting = false;                           ///< may still get better by itself: not a reason to be Stalled
  std::optional<Wait> wait;                       ///< of the inspect pod
  std::optional<k8s::Request> action;             ///< to send now; the rest is then what was known before it
  bool asks_claim = false;                        ///< the claim must be known first
  std::optional<k8s::WallTime> wake;              ///< look again then
};

/// A failed inspection is repeated after this time, or at once when the spec changes.
inline constexpr std::chrono::minutes inspect_again{5};

/// `policy`: what the API server answered for the spec's policyRef in this pass; nothing for a spec without one. `claim`: nothing as long as
/// nobody asked, which is done for groups over several nodes before they are planned, and before anything is fetched. `spec`: of `memo`.
Planning planning_of(const Owner&, const std::shared_ptr<const Spec>& spec, const Snapshot&, const Settings&, const std::optional<PolicyAnswer>& policy,
                     const std::optional<Claim>& claim, Memo& memo);

/// What nothing needs any more, the first to delete: with a plan, inspect pods and other plans; always, copies of policies that neither a pod,
/// a plan nor the present policy names.
std::optional<k8s::Request> superseded(const Planning&, const Snapshot&, const std::optional<PolicyAnswer>& policy);

}  // namespace pm::op
