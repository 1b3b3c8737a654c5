// SPDX-License-Identifier: Apache-2.0
// Describes one layout of devices in numbers: the model of each strategy fills it in, and the decision compares it.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "contract/kv_block.h"
#include "planner/hardware.h"
#include "planner/plan.h"

namespace pm {

/// The requirements that every layout has to meet.
struct Demand {
  DeviceKind kind = DeviceKind::CPU;
  DType precision = DType::F32;
  std::optional<DType> kv_precision = {};  ///< as Plan's
  int64_t device_memory = 0;
  int64_t sequence_length = 0;  ///< tokens of the longest sequence
  int64_t concurrency = 1;      ///< concurrent sequences over all data-parallel ranks
  int devices_of_a_node = 1;    ///< rank r is on node r / devices_of_a_node
  std::optional<int> micro_batches;
  HardwareValues hardware_values;
  int64_t step_tokens = pm::step_tokens;  ///< layouts are compared with this budget, whatever grow_step() makes of it
};

/// Sizes of the three axes; their product is the count of devices.
struct Sizes {
  int tensor = 1, pipeline = 1, data = 1;
  int devices() const { return tensor * pipeline * data; }
  bool operator==(const Sizes&) const = default;
};

struct Stage {
  Layers layers;
  ModelMetadata metadata;
  Partition partition;
};

/// Tensor x pipeline x data. Data-parallel ranks are alike, so the layout describes one of them.
struct Layout {
  Sizes sizes;
  std::vector<Stage> stages;
  std::vector<Memory> ranks;  ///< of a data-parallel rank, [stage x tensor + t], with the KV cache of one sequence
  size_t fullest = 0;         ///< of ranks
  int64_t kv_blocks = 0;      ///< per rank; meaningful where the layout fits
  int64_t concurrency = 1;    ///< sequences that all data-parallel ranks hold, at most those of the demand
  int micro_batches = 1;
  int64_t step_tokens = pm::step_tokens;  ///< token budget of a step, for which the activations of `ranks` are
  std::optional<Gathering>
      gathering;  ///< Sharded and Offload: `ranks` holds the fullest rank, since ranks differ only in their weights
  std::vector<int64_t> weights;  ///< of these, of every rank
  Estimate estimate;             ///< of the demanded concurrency, held or not, so that more memory never changes it
  int64_t need() const { return ranks[fullest].total(); }
  const Stage& stage_of(size_t rank) const { return stages[rank / static_cast<size_t>(sizes.tensor)]; }
};

/// Returns the KV blocks of the longest sequence: those of the answer and, with cross-attention, of its longest source.
int64_t blocks_per_sequence(const ModelMetadata&, int64_t sequence_length);
/// Returns true when the stack takes part in the timed forward pass: decoding one token runs the decoder only, other
/// forward passes run all stacks.
bool runs(const ModelMetadata&, const StackMetadata&);

/// Seconds of the stages of one data-parallel rank for a forward pass of `tokens` tokens.
struct StageTimes {
  double sum = 0;      ///< of all stages and the transfers between them: the latency of one forward pass
  double slowest = 0;  ///< the slowest stage with its transfer: the interval between forward passes
};

/// Returns one data-parallel rank of tensor x pipeline: bytes of every rank, with the KV cache of one sequence, for
/// `dp_rank_concurrency` sequences. Throws std::invalid_argument when heads or layers are too few for the sizes.
Layout tensor_pipeline(const ModelMetadata&, const Sizes&, const Demand&, int64_t dp_rank_concurrency);
StageTimes stage_times(const Layout&, const Demand&, int dp_rank, double tokens);

/// Returns `sizes.data` data-parallel copies of such a layout, each with its own sequences, with the estimate of the
/// whole.
Layout data_parallel(const ModelMetadata&, const Sizes&, const Demand&);

/// Sets the KV blocks that fit on the fullest rank, for at least one sequence and at most those of the data-parallel
/// rank's sequences (0 without a cache), and the concurrency of a data-parallel rank.
void fill_cache(const ModelMetadata&, const Demand&, int64_t dp_rank_concurrency, Layout&);

/// Gives a layout of GPUs that fits the largest token budget of a step, up to max_gpu_step_tokens, whose activations
/// take at most an eighth of the memory that is left on any rank; the KV blocks are those that fit beside them. A
/// budget of which half holds the longest prompt is not taken. The estimate stays that of the demand's budget, so that
/// more memory never makes it worse.
void grow_step(const ModelMetadata&, const Demand&, Layout&);

/// Fully sharded: n data-parallel ranks, each of which holds 1/n of every flat parameter (Sharded) or none (Offload),
/// and all-gathers a layer before it is used.
struct FullyShardedLayout {
  Layout layout;      ///< weights are the shards of a rank and two gather buffers
  std::string bound;  ///< what bounds the time
};
/// The size of a gather buffer: a layer, or a tile of its matrices, which needs less memory and more all-gathers
/// (memory-centric tiling; Rajbhandari et al. 2021).
enum class Unit : uint8_t { Layer, Tile };
FullyShardedLayout sharded(const ModelMetadata&, int n, Unit, const Demand&);
/// `from`: HostMemory or File.
FullyShardedLayout offloaded(const ModelMetadata&, int n, Unit, Residency from, const Demand&);
/// Returns the bytes of one of the two gather buffers: the largest flat parameter, or a sixteenth of it, and at least
/// the widest row.
int64_t buffer_bytes(const ModelMetadata&, Unit, DType);
/// Returns the bytes of the largest layer in `dtype`.
int64_t largest_layer(const ModelMetadata&, DType dtype);

}  // namespace pm
