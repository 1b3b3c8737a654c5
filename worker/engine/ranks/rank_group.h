// SPDX-License-Identifier: Apache-2.0
// The ranks of a replica as rank 0 sees them: its own Rank and the data-parallel ranks of the plan.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "worker/comm/membership/membership.h"
#include "worker/engine/ranks/dp_rank.h"

namespace pm::engine {

/// Configuration that every rank needs to load its shard.
struct RankGroupConfig {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const policy::Model* model = nullptr;
  const Plan* plan = nullptr;
  int64_t kv_blocks = 0;             ///< per data-parallel rank
  at::DeviceType device = at::kCPU;  ///< of all ranks
  int64_t max_kv_blocks = 0;  ///< > 0: measure memory and make as many KV blocks as fit beside the largest step, at
                              ///< most this many (process groups on an accelerator only)
  bool graphs = true;         ///< capture CUDA graphs, as in parallel::Shard
  layers::AdapterCapacity adapters = {};
  /// Called on rank 0 of a process group before it loads its shard and measures memory, to load what else is on its
  /// device; `progress` is to be called with the bytes read so far.
  std::function<void(at::Device, const std::function<void(int64_t)>& progress)> load_beside = {};
};

/// Result of one step.
struct StepResult {
  std::vector<SamplerOutput> sampled;  ///< one per entry that requests output, in order
  std::vector<Arrays> outputs;         ///< one per request of the message's forward job
};

/// The ranks of a replica in the process of rank 0.
class RankGroup {
 public:
  virtual ~RankGroup() = default;
  virtual Rank& leader() = 0;
  const std::vector<std::unique_ptr<DpRank>>& dp_ranks() const { return dp_ranks_; }
  /// KV blocks of each data-parallel rank.
  int64_t kv_blocks() const { return kv_blocks_; }
  /// Runs a message without OutputKind::Logits entries on every data-parallel rank and returns the result of the first.
  StepResult run(const StepMessage&);

 protected:
  /// Returns the channel to or from a follower.
  using OpenChannel = std::function<std::shared_ptr<comm::Channel>(int follower, comm::Direction)>;
  /// Opens the channels and data-parallel ranks of the plan after all ranks have loaded.
  void open_dp_ranks(const Plan&, const OpenChannel&, std::chrono::milliseconds deadline);
  void close_dp_ranks() { dp_ranks_.clear(); }
  /// Sends a stop message to the followers; those that have ended are skipped.
  void stop_followers() noexcept;

  int64_t kv_blocks_ = 0;

 private:
  Channels followers_;
  std::vector<std::unique_ptr<DpRank>> dp_ranks_;
};

/// Returns true if `rank` sends the results of its data-parallel rank to rank 0: tensor rank 0 of the last stage,
/// unless it is rank 0 itself.
bool sends_results(const Plan&, int rank);

/// Creates a group whose ranks are threads of this process, for `generate`, `forward --batch` and tests. Loads all
/// ranks in parallel and rethrows the first error. The other ranks follow in their own threads until the group is
/// destroyed.
std::unique_ptr<RankGroup> local_rank_group(const RankGroupConfig&);

/// Joins a group of processes as rank 0: loads its shard and waits until all ranks have loaded theirs.
std::unique_ptr<RankGroup> process_rank_group(const RankGroupConfig&, const comm::RankPlacement&);
/// Runs another rank of a group of processes: loads its shard and follows rank 0 until it says stop. Throws
/// Error{RankLost} when the group is aborted.
void follow(const RankGroupConfig&, const comm::RankPlacement&);

}  // namespace pm::engine
