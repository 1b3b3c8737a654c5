// One layout of devices in numbers: what each executor's model (one file each) fills in, and what the decision compares.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "planner/hardware.h"
#include "planner/plan.h"

namespace pm {

/// What is asked of every layout alike.
struct Demand {
  DeviceKind kind = DeviceKind::CPU;
  DType precision = DType::F32;
  int64_t device_memory = 0;
  int64_t sequence_length = 0;   ///< tokens of the longest sequence
  int64_t concurrency = 1;       ///< sequences at once, over all lanes
  int devices_of_a_node = 1;     ///< rank r lies on node r / devices_of_a_node
  std::optional<int> micro_batches;
  Figures figures;
};

/// Sizes of the three axes; their product is the count of devices.
struct Sizes {
  int tensor = 1, pipeline = 1, data = 1;
  int devices() const { return tensor * pipeline * data; }
  bool operator==(const Sizes&) const = default;
};

struct Stage { Layers layers; Facts facts; Cuts cuts; };

/// Tensor x pipeline x data. The lanes are alike, so that one stands for all.
struct Layout {
  Sizes sizes;
  std::vector<Stage> stages;
  std::vector<Memory> ranks;     ///< of a lane, [stage x tensor + t], with the KV cache of one sequence
  size_t fullest = 0;            ///< of ranks
  int64_t kv_blocks = 0;         ///< per rank; meaningful where the layout fits
  int64_t concurrency = 1;       ///< sequences that all lanes hold, at most those of the demand
  int micro_batches = 1;
  std::optional<Gathering> gathering;    ///< Sharded and Offload: `ranks` has the fullest of all, their lanes being alike but for the weights
  std::vector<int64_t> weights;          ///< of these, of every rank
  Estimate estimate;             ///< of the demanded concurrency, held or not, so that more memory never changes it
  int64_t need() const { return ranks[fullest].total(); }
  const Stage& stage_of(size_t rank) const { return stages[rank / static_cast<size_t>(sizes.tensor)]; }
};

/// KV blocks of the longest sequence: of the answer and, with cross-attention, of a source as long as it.
int64_t blocks_per_sequence(const Facts&, int64_t sequence_length);
/// The stack takes part in a pass of which times are told: the next token of an answer runs through the stack that writes it, other passes through all.
bool runs(const Facts&, const StackFacts&);

/// Seconds of one lane's stages for a pass of `tokens` tokens.
struct StageTimes {
  double sum = 0;                ///< of all stages and the hops between them: what one pass waits
  double slowest = 0;            ///< stage with its hop: what passes follow each other at
};

/// One lane of tensor x pipeline: bytes of every rank, with the KV cache of one sequence, for `lane_concurrency` sequences.
/// Throws std::invalid_argument when heads or layers are too few for the sizes.
Layout tensor_pipeline(const Facts&, const Sizes&, const Demand&, int64_t lane_concurrency);
StageTimes stage_times(const Layout&, const Demand&, int lane, double tokens);

/// Lanes: `sizes.data` copies of such a lane beside each other, each with its own sequences; the estimate of the whole.
Layout lanes(const Facts&, const Sizes&, const Demand&);

/// KV blocks that the fullest rank has room for, at least one sequence, at most those of the lane's sequences; 0 without a cache. Sets concurrency of a lane.
void fill_cache(const Facts&, const Demand&, int64_t lane_concurrency, Layout&);

/// Weight-gathered: n lanes, each of which keeps 1/n of every run of weights (Sharded) or none (Offload), and brings a layer together before it is used.
struct Gathered {
  Layout layout;                 ///< weights are what a rank keeps and two buffers
  std::string bound;             ///< what bounds the time
};
/// How large a buffer is: a layer, or a tile of its matrices, which needs less memory and more exchanges (memory-centric tiling; Rajbhandari et al. 2021).
enum class Unit : uint8_t { Layer, Tile };
Gathered sharded(const Facts&, int n, Unit, const Demand&);
/// `from`: HostMemory or File.
Gathered offloaded(const Facts&, int n, Unit, Residency from, const Demand&);
/// Bytes of one of the two buffers: the largest run of a layer, or a sixteenth of it; at least the widest row.
int64_t buffer_bytes(const Facts&, Unit, DType);
/// Bytes of the largest layer in `dtype`.
int64_t largest_layer(const Facts&, DType dtype);

}  // namespace pm
