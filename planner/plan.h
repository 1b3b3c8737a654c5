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

namespace pm {

enum class Strategy : uint8_t { Tensor, Pipeline, Data, Sharded, Offload };
enum class DeviceKind : uint8_t { CPU, GPU };

/// What the plan may use. memory_source says where the figure came from: spec, node label, product table, pod share, assumed.
struct Hardware {
  DeviceKind kind = DeviceKind::CPU;
  int devices = 1;               ///< given to one group
  int devices_per_node = 0;      ///< 0: all on one node
  int64_t device_memory = 0;     ///< bytes per device
  std::string memory_source = "spec";
};

/// What the user asked for; an absent value is planned.
struct Wishes {
  std::optional<Strategy> strategy;
  std::optional<int> tensor;     ///< spec.parallelism.sizes.tensor
  std::optional<DType> precision;
  int64_t max_sequence_length = 0;  ///< 0: the model's positions, at most 8192
  int64_t max_concurrency = 64;
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
  std::vector<std::pair<std::string, Range>> layers;  ///< of each stack
};

struct Rejected {
  std::string strategy;          ///< "Tensor x 1"
  std::string reason;            ///< DoesNotFit, NotServed, MoreRanksThanHeads, ...
  std::string message;           ///< with the numbers
};

struct Plan {
  Strategy strategy = Strategy::Tensor;
  int tensor = 1, pipeline = 1, data = 1;
  DType precision = DType::F32;
  int64_t sequence_length = 0;
  int64_t kv_blocks = 0;         ///< blocks of 16 tokens per rank: what the memory left over holds
  int64_t concurrency = 1;       ///< sequences of sequence_length that the KV blocks hold, at most max_concurrency
  int64_t shm_bytes = 0;         ///< of /dev/shm a pod needs
  int64_t device_memory = 0;
  std::string memory_source;
  std::vector<RankPlan> ranks;
  std::string reason;            ///< SmallestThatFits, UserFixed, ...
  std::string message;           ///< one sentence with the numbers, for people
  std::vector<Rejected> rejected;
};

struct Refusal {
  std::string reason;            ///< DoesNotFit, InvalidSizes, UnsupportedStrategy, DeviceMemoryUnknown
  std::string message;           ///< the arithmetic
  std::vector<Rejected> rejected;
};

/// Either a plan or a refusal.
struct Decision {
  std::optional<Plan> plan;
  std::optional<Refusal> refusal;
};

/// Chooses the layout. Smallest n that fits, unless the user fixed sizes or strategy.
Decision decide(const Facts&, const Hardware&, const Wishes&);

nlohmann::json to_json(const Plan&);
/// Parses a plan file. Throws std::invalid_argument that names the key.
Plan plan_from_json(const nlohmann::json&);
/// The plan for people: a table of ranks with what each holds and its bytes, the reason, what was rejected.
std::string describe(const Plan&);
std::string_view name_of(Strategy);
std::optional<Strategy> strategy_of(std::string_view);

/// Bytes of keys and values that one token takes on `rank`, be it in the table of the answer or of a cross-attention's source; 0 for models that do not generate.
int64_t kv_bytes_per_token(const Facts&, const Cuts&, int rank, DType);

}  // namespace pm
