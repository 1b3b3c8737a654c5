// SPDX-License-Identifier: Apache-2.0
// Computes how fully sharded weights (Sharded and Offload: FSDP, ZeRO-3) are sharded over ranks. Planner and loader
// count the same bytes, from metadata alone.
#pragma once
#include <string>
#include <vector>

#include "planner/model_metadata.h"
#include "planner/partition.h"

namespace pm {

/// The size of a flat parameter (FSDP): all sharded parameters of a layer are concatenated, and each of n ranks holds
/// one shard of the bytes.
struct FlatParamInfo {
  std::string stack;
  int layer = 0;  ///< the first layer that reads it
  int64_t bytes = 0;
  int layers = 1;  ///< number of layers that read it (ALBERT)
};

/// A token embedding, position embedding or LM head, of which each rank holds a shard of rows.
struct ShardedTable {
  std::string stack;  ///< "" for heads of the model
  int64_t rows = 0, row_bytes = 0;
  bool scored = false;  ///< an LM head: all rows are multiplied; otherwise rows are only looked up
};

/// The shards of a fully sharded model. Every rank holds replicas of parameters that have no partition axis (norms,
/// biases after a sum, projections of embeddings), and of parameters that several layers share beside their own (T5's
/// relative position biases).
struct WeightShards {
  int64_t whole = 0;  ///< bytes that every rank holds
  std::vector<FlatParamInfo> flat_params;
  std::vector<ShardedTable> tables;
  /// Returns the bytes of flat parameters and tables that rank `rank` of n holds. The sum over ranks is all bytes.
  int64_t rank_bytes(int rank, int n) const;
  int64_t largest_flat_param() const;
  /// bytes of the widest row that a tile has to hold
  int64_t widest_row = 0;
};
WeightShards shard_weights(const ModelMetadata&, DType precision);

/// Returns the shard of a flat parameter of `bytes` that `rank` of n holds. Shards begin at multiples of 64 bytes and
/// differ by at most 128 bytes.
Range flat_param_shard(int64_t bytes, int rank, int n);
/// Returns the rows of a table that `rank` of n holds. Counts differ by at most one.
Range table_shard(int64_t rows, int rank, int n);

}  // namespace pm
