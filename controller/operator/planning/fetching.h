// SPDX-License-Identifier: Apache-2.0
// Declares the fetch of a model from the hub between plan and replicas: its PVC, its pod, its progress and its
// failures.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/children/desired.h"
#include "controller/operator/observed/pod_state.h"

namespace pm::op {

/// The PVC of the checkpoint, as the API server returned it in this reconcile.
struct Claim {
  bool found = true, known = true;  ///< known is false without the right to read PVCs
  bool shareable = true;            ///< more than one node may mount it
  bool writable = true;
  std::string modes;     ///< "ReadWriteOnce, ReadOnlyMany"
  std::string cache_of;  ///< the ParallelModel that its label names
};
k8s::Request get_claim(const Owner&, const Spec&);
Claim parse_claim(const k8s::Response&);

/// The state of a fetch and what to do next.
struct Fetching {
  bool done = false;            ///< the PVC holds the checkpoint
  std::string reason, message;  ///< Fetching (bytes of total), ChecksumMismatch, SourceUnreachable, AuthFailed,
                                ///< InsufficientStorage, ClaimNotFound, ...
  std::optional<k8s::Request> action;
  bool asks_claim = false;
  std::optional<k8s::WallTime> wake;
};

/// Plans the fetch. `map` is the ConfigMap of the plan; an annotation on it records the end of the fetch, so that
/// neither a lost pod nor a restart of the operator repeats it. `source` is the hash of the checkpoint. The pod itself
/// backs off while the hub is unreachable. A failed one is created again after a pause that depends on the reason, or
/// at once when the spec changes.
Fetching plan_fetch(const Owner&, const Spec&, const Snapshot&, const Settings&, const StoredPlan&, const Json& map,
                    const std::string& source, const std::optional<Claim>&);

/// Returns the pause before a fetch or an inspection that failed with this reason is repeated.
std::chrono::seconds pause_after(const std::string& reason);

/// Returns true when the /status of this fetch pod is to be polled.
bool fetches(const PodState&);
/// Parses an untrusted /status into "1.2 GiB of 3.0 GiB, 85.0 MiB/s, 22 s left", or into the reason
/// why the fetch waits.
std::optional<Wait> fetch_progress(const Json& answer);

}  // namespace pm::op
