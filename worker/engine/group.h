// A group of ranks as rank 0 sees it: its own Rank, and the lanes that the plan makes of all ranks.
#pragma once
#include <functional>
#include <memory>
#include <vector>

#include "worker/comm/membership.h"
#include "worker/engine/lane.h"

namespace pm::engine {

/// What every rank needs to load its share.
struct GroupModel {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const policy::Model* model = nullptr;
  const Plan* plan = nullptr;
  int64_t kv_blocks = 0;             ///< of each lane
  at::DeviceType device = at::kCPU;  ///< of all ranks
  int64_t most_blocks = 0;           ///< > 0, of processes on a device that is not the processor: as many KV blocks as it has room for after the largest step (engine/warm_up.h), at most so many
  bool graphs = true;                ///< as parallel::Shard's
};

/// What a step gives.
struct StepResult {
  std::vector<Chosen> chosen;          ///< one per entry that wants something, in order
  std::vector<Arrays> outputs;         ///< of each request of the message's forward job
};

class Group {
 public:
  virtual ~Group() = default;
  virtual Rank& leader() = 0;
  const std::vector<std::unique_ptr<Lane>>& lanes() const { return lanes_; }
  /// KV blocks of each lane.
  int64_t kv_blocks() const { return kv_blocks_; }
  /// Runs the message, no entry of which wants scores, on every lane and gives what the first makes of it.
  StepResult run(const StepMessage&);

 protected:
  /// How the ranks of the group talk: to follower r, and back from it.
  using Link = std::function<std::shared_ptr<comm::Channel>(int follower, comm::Way)>;
  /// Makes the channels and lanes of the plan. Called when all ranks have loaded.
  void open_lanes(const Plan&, const Link&, std::chrono::milliseconds deadline);
  void close_lanes() { lanes_.clear(); }
  /// Tells the followers to leave; those that have ended already are skipped.
  void dismiss() noexcept;

  int64_t kv_blocks_ = 0;

 private:
  Channels followers_;
  std::vector<std::unique_ptr<Lane>> lanes_;
};

/// Whether `rank` sends its lane's results to rank 0: tensor rank 0 of the last stage, unless it is rank 0.
bool gives_results(const Plan&, int rank);

/// Ranks as threads of this process: `generate`, `forward --batch`, tests. Loads all ranks in parallel and throws what the first failing
/// one threw; ranks other than 0 follow in threads of their own until the group is destroyed.
std::unique_ptr<Group> local_group(const GroupModel&);

/// This process as rank 0 of a group of processes that launchers started: loads its share, waits until all ranks have theirs.
std::unique_ptr<Group> process_group(const GroupModel&, const comm::Place&);
/// Another rank's life: loads, follows rank 0's steps until told to stop. Throws Error{RankLost} when the group is aborted.
void follow(const GroupModel&, const comm::Place&);

}  // namespace pm::engine
