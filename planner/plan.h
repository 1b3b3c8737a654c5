// The planner: facts + hardware + wishes -> a plan with its reason, or a refusal with the arithmetic. Pure: no torch, I/O or clock.
#pragma once
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/cuts.h"
#include "planner/facts.h"
#include "planner/stages.h"

namespace pm {

/// The main axis of a layout; its sizes tell combinations.
enum class Strategy : uint8_t { Tensor, Pipeline, Data, Sharded, Offload };
/// What a layout is chosen for: seconds per token of one sequence, tokens per second of all, or bytes per device.
enum class Objective : uint8_t { Latency, Throughput, Memory };
enum class DeviceKind : uint8_t { CPU, GPU };
/// Where weights are kept that come together a layer at a time: 1/n on each device (Sharded), in the host's memory or in the checkpoint's files (Offload).
enum class Residency : uint8_t { Device, HostMemory, File };

/// A figure of the hardware and where it came from: spec, node label, product table, assumed. 0: not known.
struct Figure {
  double value = 0;
  std::string source;
  bool operator==(const Figure&) const = default;
};

/// What the plan may use. memory_source says where the figure came from: spec, node label, product table, pod share, assumed.
struct Hardware {
  DeviceKind kind = DeviceKind::CPU;
  int devices = 1;               ///< given to one group
  int devices_per_node = 0;      ///< 0: all on one node
  int64_t device_memory = 0;     ///< bytes per device; 0: the product table's, else not known
  std::string memory_source = "spec";
  std::string product;           ///< node label nvidia.com/gpu.product: "NVIDIA-H100-80GB-HBM3"; empty: not known
  Figure memory_bandwidth;       ///< bytes/s that one device reads of its own memory
  Figure flops;                  ///< 16-bit floating-point operations/s of one device
  Figure link_bandwidth, link_latency;   ///< between devices of a node: bytes/s in one direction, seconds of one exchange
  Figure node_bandwidth, node_latency;   ///< between nodes, per device
  Figure host_memory;            ///< bytes of a node beside its devices
};

/// What the user asked for; an absent value is planned.
struct Wishes {
  std::optional<Strategy> strategy;
  std::optional<int> tensor, pipeline, data;   ///< spec.parallelism.sizes
  std::optional<DType> precision;
  int64_t max_sequence_length = 0;  ///< 0: the model's positions, at most 8192
  int64_t max_concurrency = 64;
  Objective objective = Objective::Latency;
  std::optional<int> micro_batches;
  std::optional<Residency> offload_to;         ///< of Offload; absent: File
};

/// Bytes of one rank, each term named.
struct Memory {
  int64_t weights = 0, kv = 0, activations = 0, communicator = 0, runtime = 0;
  int64_t total() const { return weights + kv + activations + communicator + runtime; }
};

/// One rank of a plan. rank = (lane x stages + stage) x tensor + t.
struct RankPlan {
  int rank = 0, lane = 0, stage = 0, tensor = 0;
  Memory predicted;
  nlohmann::json cut() const;    ///< {"decoder": {"layers": [0, 12], "heads": [0, 6], "kv": .., "kv_rows": .., "ffn": ..}, "vocab": [0, 25129]}
  std::vector<Cuts::Row> rows;   ///< each row holds one range: this rank's
  Layers layers;                 ///< its stage: deal(facts_of_stage(facts, layers), tensor, precision) are its cuts
};

/// What a layout is judged by. Times are of the models in planner/strategies/, 0 where there is none.
struct Estimate {
  int64_t bytes = 0;             ///< of the fullest device, with the KV cache of one sequence
  double token_seconds = 0;      ///< one more token of one sequence while no other is served; the whole pass for models that do not generate
  double tokens_per_second = 0;  ///< of the group with as many sequences as it holds
  bool operator==(const Estimate&) const = default;
};

struct Rejected {
  std::string strategy;          ///< "Tensor x 1"
  std::string reason;            ///< DoesNotFit, NotNeeded, TooFewHeads, ...
  std::string message;           ///< with the numbers
  std::optional<Estimate> estimate;
};

/// A figure of the hardware as the plan used it.
struct UsedFigure {
  std::string name, unit;        ///< "memory bandwidth", "bytes/s"
  Figure figure;
};

/// How Sharded and Offload bring weights together (planner/spread.h): into one of two buffers of so many bytes. `host`: bytes of the host's memory that a rank pins for what it keeps of
/// the weights (Residency::HostMemory), those of the rank with the most; plans of before they were counted have 0.
struct Gathering { Residency from = Residency::Device; int64_t buffer = 0, host = 0; };

struct Plan {
  Strategy strategy = Strategy::Tensor;
  int tensor = 1, pipeline = 1, data = 1;
  int micro_batches = 1;         ///< pieces of one pass, or groups of sequences in flight, that the stages work on at once
  std::optional<Gathering> gathering;   ///< of Sharded and Offload
  Objective objective = Objective::Latency;
  DType precision = DType::F32;
  int64_t sequence_length = 0;
  int64_t kv_blocks = 0;         ///< blocks of 16 tokens, the same on each rank: what the memory left over holds
  int64_t concurrency = 1;       ///< sequences of sequence_length that the KV blocks of all lanes hold, at most max_concurrency
  int64_t shm_bytes = 0;         ///< of /dev/shm a pod needs
  int64_t device_memory = 0;
  std::string memory_source;
  std::vector<RankPlan> ranks;
  std::string reason;            ///< SmallestThatFits, UserFixed, ...
  std::string message;           ///< one sentence with the numbers, for people
  Estimate estimate;
  std::vector<UsedFigure> figures;
  std::vector<Rejected> rejected;
};

struct Refusal {
  std::string reason;            ///< DoesNotFit, InvalidSizes, UnsupportedStrategy, UnsupportedPrecision, DeviceMemoryUnknown
  std::string message;           ///< the arithmetic
  std::vector<Rejected> rejected;
};

/// Either a plan or a refusal.
struct Decision {
  std::optional<Plan> plan;
  std::optional<Refusal> refusal;
};

/// Chooses the layout; what the user fixed is obeyed or refused (docs/planner.md).
Decision decide(const Facts&, const Hardware&, const Wishes&);

nlohmann::json to_json(const Plan&);
/// Parses a plan file. Throws std::invalid_argument that names the key.
Plan plan_from_json(const nlohmann::json&);
/// The plan for people: a table of ranks with what each holds and its bytes, the reason, what was rejected.
std::string describe(const Plan&);
std::string_view name_of(Strategy);
std::optional<Strategy> strategy_of(std::string_view);
std::string_view name_of(Objective);
std::string_view name_of(Residency);
std::optional<Residency> residency_of(std::string_view);
std::optional<Objective> objective_of(std::string_view);

/// Bytes of keys and values that one token takes on `rank`, be it in the table of the answer or of a cross-attention's source; 0 for models that do not generate.
int64_t kv_bytes_per_token(const Facts&, const Cuts&, int rank, DType);

}  // namespace pm
