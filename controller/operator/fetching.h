// Between a plan and its groups, for a model on the hub: the claim, the fetch pod, how far it is and what went wrong.
#pragma once
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "controller/operator/desired.h"
#include "controller/operator/pod_state.h"

namespace pm::op {

/// The claim that holds or will hold the checkpoint, as the API server answered in this pass.
struct Claim {
  bool found = true, known = true;                ///< not known: we may not read claims
  bool shareable = true;                          ///< more than one node may mount it
  bool writable = true;
  std::string modes;                              ///< "ReadWriteOnce, ReadOnlyMany"
  std::string cache_of;                           ///< the ParallelModel that it was made for, by its label
};
k8s::Request get_claim(const Owner&, const Spec&);
Claim claim_of(const k8s::Response&);

/// What stands between a plan and its groups.
struct Fetching {
  bool done = false;                              ///< the bytes are on the claim
  std::string reason, message;                    ///< Fetching (bytes of total), ChecksumMismatch, SourceUnreachable, AuthFailed, InsufficientStorage, ClaimNotFound, ...
  std::optional<k8s::Request> action;
  bool asks_claim = false;
  std::optional<k8s::WallTime> wake;
};

/// `map`: the plan's ConfigMap, on which it is noted that the bytes are there, so that neither a lost pod nor a restart of the operator begins anew; `source`: the hash of what is
/// fetched. The pod itself backs off while the hub is away; one that gave up is made again after a pause that depends on why, or at once when the spec changes.
Fetching fetching_of(const Owner&, const Spec&, const Snapshot&, const Settings&, const StoredPlan&, const Json& map, const std::string& source, const std::optional<Claim>&);

/// How long a fetch or an inspection that ended with this reason is left alone.
std::chrono::seconds pause_after(const std::string& reason);

/// The /status of this fetch pod is worth asking for.
bool fetches(const PodState&);
/// "1.2 GiB of 3.0 GiB", or what holds it up, from an answer of /status. Untrusted.
std::optional<Wait> fetch_progress(const Json& answer);

}  // namespace pm::op
