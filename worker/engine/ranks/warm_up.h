// SPDX-License-Identifier: Apache-2.0
// Measures how many KV blocks fit on a device beside the activations of the largest step.
#pragma once
#include "worker/engine/ranks/rank_group.h"

namespace pm::engine {

/// Returns the largest step that the plan allows: a prompt chunk at the end of the longest sequence (with a full
/// encoder input if there is an encoder) beside single tokens of other sequences, all with logits, and a forward pass
/// over one such sequence up to the limit of scores. `blocks` is the number of KV blocks available to it. `needed`
/// receives the number that it uses. Throws std::invalid_argument if `blocks` is less than one sequence needs.
StepMessage largest_step(const policy::Model&, const Plan&, int64_t blocks, int64_t& needed);

struct WarmUpResult {
  int64_t blocks = 0;       ///< KV blocks of the rank
  int64_t activations = 0;  ///< bytes of the largest step beside weights and KV blocks
  int64_t graphs = 0;       ///< bytes held by CUDA graphs
};

/// Runs the largest step, captures a CUDA graph for each batch size if possible, and sizes the KV cache to the memory
/// that is left. The limit is the device memory or the plan's share of it. The activation peak of the largest step,
/// memory lost to fragmentation and graph memory stay free. The graphs are then captured again over the new blocks, in
/// the same order. All ranks of `world` call it together and end with the same number of blocks, at most
/// config.max_kv_blocks. `ranks_on_device` is the number of processes that share the device. Throws Error{OOMKilled} if
/// not even one sequence fits.
WarmUpResult warm_up(Rank&, const RankGroupConfig& config, comm::Communicator& world, int ranks_on_device);

}  // namespace pm::engine
