// SPDX-License-Identifier: Apache-2.0
// The planner maps model metadata, hardware and constraints to a plan with its reason, or to a refusal with the
// arithmetic. It is pure: it uses no torch, I/O or clock.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "contract/kv_block.h"
#include "contract/memory_bytes.h"
#include "contract/reasons.h"
#include "planner/model_metadata.h"
#include "planner/partition.h"
#include "planner/stages.h"

namespace pm {

/// The main axis of a layout; its sizes describe combinations.
enum class Strategy : uint8_t { Tensor, Pipeline, Data, Sharded, Offload };
/// The objective of the choice: seconds per token of one sequence, tokens per second of all sequences, or bytes per
/// device.
enum class Objective : uint8_t { Latency, Throughput, Memory };
enum class DeviceKind : uint8_t { CPU, GPU };
/// The location of fully sharded weights: 1/n on each device (Sharded), in the host's memory or in the checkpoint's
/// files (Offload).
enum class Residency : uint8_t { Device, HostMemory, File };

/// A hardware parameter and its source: spec, node label, product table, assumed. 0 means unknown.
struct HardwareValue {
  double value = 0;
  std::string source;
  bool operator==(const HardwareValue&) const = default;
};

/// The hardware that a plan may use. memory_source names the source of the memory size: spec, ResourceSlice, node
/// label, product table, pod share, assumed.
struct Hardware {
  DeviceKind kind = DeviceKind::CPU;
  int devices = 1;            ///< of one replica
  int devices_per_node = 0;   ///< 0: all on one node
  int64_t device_memory = 0;  ///< bytes per device; 0: the product table's, else not known
  std::string memory_source = "spec";
  std::string product;             ///< node label nvidia.com/gpu.product: "NVIDIA-H100-80GB-HBM3"; empty: not known
  HardwareValue memory_bandwidth;  ///< bytes/s that one device reads of its own memory
  HardwareValue flops;             ///< 16-bit floating-point operations/s of one device
  HardwareValue link_bandwidth,
      link_latency;  ///< between devices of a node: bytes/s in one direction, seconds of one exchange
  HardwareValue node_bandwidth, node_latency;  ///< between nodes, per device
  HardwareValue host_memory;                   ///< bytes of a node beside its devices
};

/// Constraints and options of the user; the planner chooses absent values.
struct PlanConstraints {
  std::optional<Strategy> strategy;
  std::optional<int> tensor, pipeline, data;  ///< spec.parallelism.sizes
  std::optional<DType> precision;
  std::optional<DType> kv_precision;  ///< I8; absent: keys and values have the type in which the model computes
  int64_t max_sequence_length = 0;    ///< 0: the model's positions, at most 8192
  int64_t max_concurrency = 64;
  Objective objective = Objective::Latency;
  std::optional<int> micro_batches;
  std::optional<Residency> offload_to;  ///< of Offload; absent: File
};

/// One rank of a plan. rank = (dp_rank x stages + stage) x tensor + t.
struct RankPlan {
  int rank = 0, dp_rank = 0, stage = 0, tensor = 0;
  Memory predicted;
  nlohmann::json shard() const;  ///< {"decoder": {"layers": [0, 12], "heads": [0, 6], "kv": .., "kv_rows": .., "ffn":
                                 ///< ..}, "vocab": [0, 25129]}
  std::vector<Partition::Row> rows;  ///< each row holds one range: this rank's
  Layers layers;  ///< its stage: make_partition(stage_metadata(metadata, layers), tensor, precision) are its partition
};

/// The estimates by which layouts are compared. Times come from the models in planner/strategies/; 0 means that there
/// is none.
struct Estimate {
  int64_t bytes = 0;         ///< of the fullest device, with the KV cache of one sequence and steps of 512 tokens
  double token_seconds = 0;  ///< one more token of one sequence while no other is served; the whole forward pass for
                             ///< models that do not generate
  double tokens_per_second = 0;  ///< of the replica with as many sequences as it holds
  bool operator==(const Estimate&) const = default;
};

struct Rejected {
  std::string strategy;  ///< "Tensor x 1"
  std::string reason;    ///< DoesNotFit, NotNeeded, TooFewHeads, ...
  std::string message;   ///< with the numbers
  std::optional<Estimate> estimate;
};

/// A hardware parameter as the plan used it.
struct UsedHardwareValue {
  std::string name, unit;  ///< "memory bandwidth", "bytes/s"
  HardwareValue value;
};

/// Describes how Sharded and Offload all-gather weights (planner/weight_shards.h): into one of two buffers of `buffer`
/// bytes. `host` is the pinned host memory in bytes of the rank with the largest weight shards (Residency::HostMemory);
/// plans of earlier versions have 0.
struct Gathering {
  Residency from = Residency::Device;
  int64_t buffer = 0, host = 0;
};

/// A draft model on rank 0 (planner/draft_plan.h), beside what is predicted of that rank.
struct PlannedDraft {
  int64_t bytes = 0;  ///< of its weights, KV blocks and largest step
  int64_t kv_blocks = 0;
  bool operator==(const PlannedDraft&) const = default;
};

struct Plan {
  Strategy strategy = Strategy::Tensor;
  int tensor = 1, pipeline = 1, data = 1;
  int micro_batches =
      1;  ///< pieces of one forward pass, or groups of sequences in flight, that the stages work on at once
  std::optional<Gathering> gathering;  ///< of Sharded and Offload
  Objective objective = Objective::Latency;
  DType precision = DType::F32;
  std::optional<DType> kv_precision;  ///< I8: integers with a scale for each token and head; absent: compute_type()
  int64_t sequence_length = 0;
  int64_t step_tokens = pm::step_tokens;  ///< token budget of a step; longer prompts are prefilled in chunks
  int64_t kv_blocks = 0;  ///< blocks of 16 tokens, the same on each rank; they fill the remaining memory
  int64_t concurrency =
      1;  ///< sequences of sequence_length that the KV blocks of all data-parallel ranks hold, at most max_concurrency
  int64_t shm_bytes = 0;      ///< of /dev/shm a pod needs
  int64_t device_memory = 0;  ///< without `adapter_bytes` and `draft`
  std::string memory_source;
  int64_t adapter_bytes = 0;          ///< at most, of LoRA adapters on each rank, beside what is predicted of it
  std::optional<PlannedDraft> draft;  ///< nullopt: no model drafts for this one
  std::vector<RankPlan> ranks;
  std::string reason;   ///< the name of a reason of Planned=True: UserFixed, ...
  std::string message;  ///< one sentence with the numbers, for people
  Estimate estimate;
  std::vector<UsedHardwareValue> hardware_values;
  std::vector<Rejected> rejected;
};

struct Refusal {
  Reason reason =
      Reason::DoesNotFit;  ///< or InvalidSizes, UnsupportedStrategy, UnsupportedPrecision, DeviceMemoryUnknown
  std::string message;     ///< the arithmetic
  std::vector<Rejected> rejected;
};

/// Either a plan or a refusal.
struct Decision {
  std::optional<Plan> plan;
  std::optional<Refusal> refusal;
};

/// Chooses the layout; what the user fixed is obeyed or refused (docs/design/planner.md).
Decision decide(const ModelMetadata&, const Hardware&, const PlanConstraints&);

nlohmann::json to_json(const Plan&);
/// Parses a plan file. Throws std::invalid_argument that names the key.
Plan plan_from_json(const nlohmann::json&);
/// Describes the plan for people: a table of ranks with their layers and bytes, the reason, and the rejected
/// alternatives.
std::string describe(const Plan&);
std::string_view name_of(Strategy);
std::optional<Strategy> strategy_of(std::string_view);
std::string_view name_of(Objective);
std::string_view name_of(Residency);
std::optional<Residency> residency_of(std::string_view);
std::optional<Objective> objective_of(std::string_view);

/// Returns the bytes of its device that the tensors of a rank may take: all but what runtime and communicators hold,
/// with what adapters and a draft model keep.
int64_t tensor_memory(const Plan&, int rank);

/// Returns the share of one of `data` data-parallel ranks in a number of sequences, rounded up.
constexpr int64_t per_dp_rank(int64_t sequences, int data) { return (sequences + data - 1) / data; }

/// Returns the bytes of keys and values that one token takes on `rank`, in the block table of the answer or of a
/// cross-attention's source; 0 for models that do not generate. Latents are whole on every tensor-parallel rank, and no
/// `kv_precision` changes them. With I8 a key, and a value, of a head takes a byte for each number and kv_scale_bytes.
int64_t kv_bytes_per_token(const ModelMetadata&, const Partition&, int rank, DType precision,
                           std::optional<DType> kv_precision = std::nullopt);

}  // namespace pm
