// A group of ranks as rank 0 sees it: its own Rank and a channel to every other.
#pragma once
#include <memory>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/rank.h"

namespace pm::engine {

/// What every rank needs to load its share.
struct GroupModel {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const policy::Model* model = nullptr;
  const Cuts* cuts = nullptr;
  DType precision = DType::F32;
  int64_t kv_blocks = 0;
};

class Group {
 public:
  virtual ~Group() = default;
  virtual Rank& leader() = 0;
  virtual const std::vector<std::shared_ptr<comm::Channel>>& channels() const = 0;
  /// Sends the message to the followers and runs it on rank 0.
  StepResult run(const StepMessage&);

 protected:
  /// Tells the followers to leave; those that have ended already are skipped.
  void dismiss() noexcept;
};

/// Ranks as threads of this process: `generate`, `forward --batch`, tests. Loads all ranks in parallel and throws what the first failing
/// one threw; ranks other than 0 follow in threads of their own until the group is destroyed.
std::unique_ptr<Group> local_group(const GroupModel&);

/// This process as one rank of a group of processes that a launcher started around a shared-memory segment.
struct ProcessRank {
  std::string segment;
  int rank = 0, size = 1;
  std::chrono::milliseconds deadline{30000};   ///< of a wait inside a step
};

/// Rank 0's side: loads its share, waits until all ranks have theirs.
std::unique_ptr<Group> process_group(const GroupModel&, const ProcessRank&);
/// Another rank's life: loads, follows rank 0's steps until told to stop. Throws Error{RankLost} when the group is aborted.
void follow(const GroupModel&, const ProcessRank&);

}  // namespace pm::engine
