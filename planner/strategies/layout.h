// One layout of devices in numbers: what each executor's model (one file each) fills in, and what the decision compares.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan.h"

namespace pm {

/// What is asked of every layout alike.
struct Demand {
  DeviceKind kind = DeviceKind::CPU;
  DType precision = DType::F32;
  int64_t device_memory = 0;
  int64_t sequence_length = 0;   ///< tokens of the longest sequence
  int64_t concurrency = 1;       ///< sequences at once, over all lanes
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
  int64_t lane_concurrency = 1;  ///< sequences that a lane holds
  int64_t need() const { return ranks[fullest].total(); }
  const Stage& stage_of(size_t rank) const { return stages[rank / static_cast<size_t>(sizes.tensor)]; }
};

/// KV blocks of the longest sequence: of the answer and, with cross-attention, of a source as long as it.
int64_t blocks_per_sequence(const Facts&, int64_t sequence_length);

/// Bytes of every rank of a lane. Throws std::invalid_argument when heads or layers are too few for the sizes.
Layout tensor_pipeline(const Facts&, const Sizes&, const Demand&);

}  // namespace pm
