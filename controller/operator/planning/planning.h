// SPDX-License-Identifier: Apache-2.0
// Declares the way from a spec to a stored plan: inspect the checkpoint, plan, store. Each call does one step from the
// current snapshot.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/children/desired.h"
#include "controller/operator/children/model_cache.h"
#include "controller/operator/planning/device_inventory.h"
#include "controller/operator/planning/fetching.h"
#include "controller/operator/planning/inspection.h"

namespace pm::op {

struct Planning {
  std::shared_ptr<const StoredPlan> plan;  ///< for the current constraints; null: none
  std::string note;                        ///< beside a plan: a remark for users
  std::optional<Wait> fetch;  ///< beside a plan: its checkpoint is not on the PVC yet, and no replica starts before
  std::optional<int64_t> fetch_seconds;  ///< how long the download of the checkpoint took, once it is complete
  /// The reason and message of Planned=False, without a plan.
  std::string reason, message;
  std::vector<Rejected> rejected;
  bool waiting = false;                ///< may still resolve itself, so it is no reason for Stalled
  std::optional<Wait> wait;            ///< of the inspect pod
  std::optional<k8s::Request> action;  ///< to send now; the other members are then those before it
  bool asks_claim = false;             ///< the PVC must be read first
  bool asks_devices = false;           ///< the device inventory must be read first
  std::optional<k8s::WallTime> wake;   ///< reconcile again then
};

/// The pause before a failed inspection is repeated; a change of the spec repeats it at once.
inline constexpr std::chrono::minutes inspect_again{5};

/// Plans one step. `policy` is the result of reading the policyRef of the spec in this reconcile; nullopt without one.
/// `claim` is nullopt until the PVC was read, which is needed before replicas over several nodes are planned and before
/// a fetch. `devices` is nullopt until the device inventory was read, which is needed where needs_inventory() is true.
/// `spec` must come from `cache`.
Planning plan_model(const Owner&, const std::shared_ptr<const Spec>& spec, const Snapshot&, const Settings&,
                    const std::optional<PolicyAnswer>& policy, const std::optional<Claim>& claim,
                    const std::optional<DeviceInventory>& devices, ModelCache& cache);

/// Returns the deletion of the first superseded object; nullopt when there is none. With a plan, inspect pods and other
/// plans are superseded. Copies of policies are superseded once no pod, plan or current policy names them.
std::optional<k8s::Request> superseded(const Planning&, const Snapshot&, const std::optional<PolicyAnswer>& policy);

}  // namespace pm::op
