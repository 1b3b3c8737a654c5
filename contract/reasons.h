// SPDX-License-Identifier: Apache-2.0
// The reasons that the worker reports and the controller shows: one table, from which the enum is made. Messages, JSON
// and conditions carry a reason's name.
#pragma once
#include <array>
#include <concepts>
#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

namespace pm {

/// What kind of error a reason is. The worker exits with a code of its own for each.
enum class ErrorKind {
  None,         ///< not an error, or one that only the controller sees
  Internal,     ///< an error inside the program: exit code 1
  Usage,        ///< wrong flags: exit code 2
  Request,      ///< an invalid request: HTTP 400; exit code 2 in the CLI
  Model,        ///< checkpoint, config or policy refused: exit code 3
  DoesNotFit,   ///< the model does not fit the devices: exit code 4
  RankLost,     ///< a rank died, froze or the communicator was aborted: exit code 5
  Interrupted,  ///< stopped by a signal: exit code 6
};

/// Where the controller shows a reason; docs/reference/conditions.md has a table for each.
enum class ShownIn {
  Plan,         ///< Planned=True and status.plan.reason
  Rejected,     ///< status.plan.rejected
  Planned,      ///< Planned=False
  Replica,      ///< Scheduled, ModelLoaded and Ready=False, because of a replica
  Model,        ///< Scheduled, ModelLoaded and Ready=False, because of the whole model
  Holds,        ///< Scheduled, ModelLoaded and Ready=True
  Reconciling,  ///< Reconciling and Stalled
  Record,       ///< status.replicaStatuses alone
  Worker,       ///< nowhere: conditions show RankLost or InspectFailed, and the worker's own message
};

// X(name, shown in, kind of error, what it means)
#define PM_REASONS(X)                                                                                           \
  X(UserFixed, Plan, None, "what the spec fixes")                                                               \
  X(FitsOneDevice, Plan, None, "one device; it holds the model")                                                \
  X(OnlyOneThatFits, Plan, None, "the only one that fits the devices")                                          \
  X(LowestLatency, Plan, None, "the fastest of those that fit, for `objective: Latency`")                       \
  X(HighestThroughput, Plan, None, "the best of those that fit, for `objective: Throughput`")                   \
  X(LeastMemory, Plan, None, "the smallest of those that fit, for `objective: Memory`")                         \
  X(MostRoom, Plan, None, "the one that holds the most sequences")                                              \
  X(NoGainFromPartitioning, Plan, None, "unsharded, as sharding gains nothing")                                 \
  X(NothingElseFits, Plan, None, "Sharded or Offload, as no layout fits that keeps the weights on the devices") \
  X(HoldsTooFew, Rejected, None, "less than a quarter of the sequences")                                        \
  X(Slower, Rejected, None, "a longer time per token")                                                          \
  X(LowerThroughput, Rejected, None, "fewer tokens per second")                                                 \
  X(MoreMemory, Rejected, None, "more memory on a device")                                                      \
  X(NotChosen, Rejected, None, "room, but no layout was chosen")                                                \
  X(TooFewHeads, Rejected, None, "fewer heads than ranks of a tensor group")                                    \
  X(TooFewLayers, Rejected, None, "fewer layers than stages")                                                   \
  X(SpansNodes, Rejected, None, "a tensor group over nodes")                                                    \
  X(NotNeeded, Rejected, None, "weights that the devices hold without it")                                      \
  X(Inspecting, Planned, None, "the inspect pod reads the checkpoint's headers")                                \
  X(ClaimNotFound, Planned, None, "the PersistentVolumeClaim (PVC) is not in this namespace")                   \
  X(ClaimNotShareable, Planned, None, "the PVC cannot be mounted on several nodes")                             \
  X(PolicyNotFound, Planned, None, "the ConfigMap of `model.policyRef`, or its key, is missing")                \
  X(UnsupportedPolicy, Planned, Model, "your policy is wrong at `/policy/FILE:LINE`")                           \
  X(UnknownArchitecture, Planned, Model, "no built-in policy for this model_type or class")                     \
  X(ModelUnreadable, Planned, Model, "the file, tensor or key is in the message")                               \
  X(SourceUnreachable, Planned, Model, "the hub cannot be reached")                                             \
  X(AuthFailed, Planned, Model, "the hub answers 401 or 403")                                                   \
  X(RevisionNotFound, Planned, Model, "no such model, branch, tag or commit")                                   \
  X(InspectFailed, Planned, Model, "the inspect pod failed otherwise, or a plan is unreadable")                 \
  X(DeviceMemoryUnknown, Planned, Usage, "no label says the memory of a device")                                \
  X(DoesNotFit, Planned, DoesNotFit, "the arithmetic is in the message")                                        \
  X(InvalidSizes, Planned, Usage, "sizes or a field that devices, heads or layers do not allow")                \
  X(UnsupportedStrategy, Planned, Usage, "Offload to HostMemory without GPUs or host memory")                   \
  X(UnsupportedPrecision, Planned, Usage, "a precision that these weights or devices do not allow")             \
  X(Starting, Replica, None, "pods are made, or the worker starts")                                             \
  X(Loading, Replica, None, "ranks read their bytes; the message counts them")                                  \
  X(InsufficientDevices, Replica, Usage, "\"needs N, free M\"")                                                 \
  X(Unschedulable, Replica, None, "the scheduler's message, or a pod that the API server refuses")              \
  X(ImagePullFailed, Replica, None, "the image cannot be pulled")                                               \
  X(VolumeNotMounted, Replica, None, "a PVC, ConfigMap or Secret is missing or unusable")                       \
  X(RankLost, Replica, RankLost, "a rank died; the replica restarts")                                           \
  X(RankHung, Replica, RankLost, "a rank froze, or no step ended in `hangTimeoutSeconds`")                      \
  X(OOMKilled, Replica, DoesNotFit, "the memory limit, or the device's memory, was reached")                    \
  X(CommunicatorAborted, Replica, RankLost, "the ranks' communication ended, without a rank as cause")          \
  X(DeviceFault, Replica, None, "the device plugin or the worker found no usable device")                       \
  X(NodeLost, Replica, RankLost, "the node is gone, evicted the pod, or shuts down")                            \
  X(QueueWaiting, Replica, None, "a queue holds the pods by their scheduling gates")                            \
  X(ReplicaWaiting, Replica, None, "not all pods found a node, so all were released")                           \
  X(Disrupted, Replica, None, "an eviction, preemption or shut-down ended it; no restart is counted")           \
  X(BackingOff, Replica, None, "failures in a row; the next try is in the message")                             \
  X(RestartBudgetExhausted, Replica, None, "`failure.maxRestarts` within `windowSeconds` is spent")             \
  X(Fetching, Model, None, "the fetch pod downloads; the message counts bytes")                                 \
  X(QuotaExceeded, Model, None, "the namespace's quota")                                                        \
  X(InsufficientStorage, Model, Model, "the cache PVC is too small")                                            \
  X(VolumeNotWritable, Model, Model, "the cache PVC is not writable for user 65532")                            \
  X(ChecksumMismatch, Model, Model, "a file had wrong bytes twice")                                             \
  X(ScaledToZero, Model, None, "`spec.replicas` is 0")                                                          \
  X(NameConflict, Model, None, "an object of that name belongs to somebody else")                               \
  X(AllPodsBound, Holds, None, "every pod has its node")                                                        \
  X(Loaded, Holds, None, "every rank of a replica holds its bytes")                                             \
  X(Serving, Holds, None, "at least one replica serves")                                                        \
  X(Progressing, Reconciling, None, "replicas are started or replaced")                                         \
  X(Converged, Reconciling, None, "the observed state is the desired one")                                      \
  X(Stalled, Reconciling, None, "it waits for a change")                                                        \
  X(RolloutBlocked, Reconciling, None, "the new spec fails; replicas of the previous spec serve on")            \
  X(NotStalled, Reconciling, None, "something can still happen without a change")                               \
  X(ScalingDown, Record, None, "it is above `spec.replicas` and drains")                                        \
  X(Updating, Record, None, "it is replaced because the spec changed")                                          \
  X(Moving, Record, None, "it leaves a node that is cordoned or about to be removed")                           \
  X(StartTimeout, Record, None, "it was not ready within `failure.startSeconds`")                               \
  X(Usage, Worker, Usage, "a flag, or a set of flags, that cannot be used")                                     \
  X(NoDevice, Worker, Usage, "no such device on this host, or a worker built without it")                       \
  X(UnsupportedDevice, Worker, Usage, "this program has no communicator for the device")                        \
  X(PlanUnreadable, Worker, Usage, "the plan file cannot be read, or is not a plan")                            \
  X(PlanUnwritable, Worker, Usage, "the launcher cannot hand the plan to its ranks")                            \
  X(PortInUse, Worker, Usage, "a port cannot be listened on")                                                   \
  X(ApiKeysUnreadable, Worker, Usage, "the folder of API keys cannot be read, or holds none")                   \
  X(CertificateUnreadable, Worker, Usage, "the TLS certificate or its key cannot be used")                      \
  X(InvalidRequest, Worker, Request, "an input of the CLI or of a request is wrong; the message names it")      \
  X(QueueFull, Worker, Request, "`--max-queue` requests wait (HTTP 429)")                                       \
  X(ImageRefused, Worker, Request, "an image of another format, or a damaged one")                              \
  X(ImageTooLarge, Worker, Request, "an image with more pixels than the limit (HTTP 413)")                      \
  X(AudioRefused, Worker, Request, "audio of another format, damaged, or empty")                                \
  X(AudioTooLarge, Worker, Request, "audio with more seconds than the limit (HTTP 413)")                        \
  X(InputUnreadable, Worker, Request, "an input file of the CLI cannot be read")                                \
  X(OutputUnwritable, Worker, Request, "an output file of the CLI cannot be written")                           \
  X(InvalidJob, Worker, None, "a line of `forward --batch` is not a job; the others run")                       \
  X(Interrupted, Worker, Interrupted, "stopped by a signal before all requests were answered")                  \
  X(InternalError, Worker, Internal, "a defect of the program; please report it")

enum class Reason : uint8_t {
#define PM_ENUMERATOR(name, shown_in, kind, text) name,
  PM_REASONS(PM_ENUMERATOR)
#undef PM_ENUMERATOR
};

struct ReasonInfo {
  Reason reason;
  std::string_view name, text;  ///< text: what it means, as in docs/reference/conditions.md
  ShownIn shown_in;
  ErrorKind kind;
};

/// All reasons, in the order of the enum.
inline constexpr std::array reason_table{
#define PM_ROW(name, shown_in, kind, text) ReasonInfo{Reason::name, #name, text, ShownIn::shown_in, ErrorKind::kind},
    PM_REASONS(PM_ROW)
#undef PM_ROW
};
#undef PM_REASONS

constexpr const ReasonInfo& info_of(Reason reason) { return reason_table[static_cast<size_t>(reason)]; }
/// Returns the word of JSON, messages and conditions: "ModelUnreadable".
inline std::string name_of(Reason reason) { return std::string(info_of(reason).name); }
/// Returns nullopt for a word that this version does not know, such as one of a pod of another version.
std::optional<Reason> parse_reason(std::string_view name);

/// Returns the exit code of a process that ends with an error of this kind.
int exit_code(ErrorKind);

/// Compares a word that came from outside. String literals are not accepted, so that a misspelt one does not compile;
/// nor is a nlohmann::json, which converts to anything.
template <std::same_as<std::string> Word, std::same_as<Reason> Known>
bool operator==(const Word& word, Known reason) {
  return word == info_of(reason).name;
}
inline std::ostream& operator<<(std::ostream& out, Reason reason) { return out << info_of(reason).name; }
/// Writes the name into a nlohmann::json, which would write a number otherwise.
template <typename Json>
void to_json(Json& json, const Reason& reason) {
  json = name_of(reason);
}

}  // namespace pm
