// SPDX-License-Identifier: Apache-2.0
// Divides the memory of a rank's device between weights, the largest step, CUDA graphs and KV blocks. Pure functions of
// what the warm-up measured. All values are bytes, except numbers of blocks.
#pragma once
#include <cstdint>

#include "worker/ops/device_memory.h"

namespace pm::engine {

/// Device memory at the moments of a warm-up.
struct WarmUpMemory {
  ops::DeviceMemory before_step, after_step;      ///< around the largest step, with the KV blocks of one sequence
  ops::DeviceMemory without_graphs, with_graphs;  ///< around the capture of CUDA graphs; equal if none is captured
  ops::DeviceMemory without_blocks;               ///< after the KV blocks of the warm-up are freed
  int64_t block_bytes = 0;                        ///< of one KV block; 0 if the rank has no layer with a KV cache
  int64_t state_bytes = 0;  ///< of the states of recurrent layers, which were freed with the blocks
  int ranks_on_device = 1;  ///< processes that share the device
};

/// The memory that a rank may use, by what it is kept for.
struct MemoryBudget {
  int64_t limit = 0;          ///< usable by this rank: its part of the device, or of what the plan allows
  int64_t allocated = 0;      ///< in tensors without KV blocks: the weights, the states of recurrent layers
  int64_t activations = 0;    ///< peak of the largest step
  int64_t fragmentation = 0;  ///< what the allocator held beyond that peak
  int64_t graphs = 0;         ///< held by CUDA graphs
  int64_t answers = 0;        ///< kept free for answers of forward requests, if the promised KV blocks still fit
  int64_t block_bytes = 0;    ///< of one KV block; 0 if the rank has no layer with a KV cache

  /// Returns the bytes that a step needs beside weights and KV blocks.
  int64_t step() const { return activations + fragmentation + graphs; }
  /// Returns the bytes that remain for KV blocks; at least 0.
  int64_t kv() const;
  /// Returns the most that the allocator may hold after the KV blocks are made.
  int64_t max_reserved() const { return limit - step(); }
  /// Returns the number of KV blocks to make, at most `max_blocks`. `promised` blocks, those of the plan, take the
  /// memory of `answers` where they need it.
  int64_t kv_blocks(int64_t promised, int64_t max_blocks) const;
};

/// Returns the budget of a rank. `plan_limit` is the device memory of the plan without runtime and communicators.
MemoryBudget memory_budget(const WarmUpMemory&, int64_t plan_limit, int64_t answers);

}  // namespace pm::engine
