// A group of ranks as threads of this process: `generate`, `forward --batch` and tests.
#pragma once
#include <memory>
#include <thread>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/rank.h"

namespace pm::engine {

class LocalGroup {
 public:
  /// Loads all ranks in parallel; rank 0 is driven by the caller, the others follow in threads of their own. Throws what the first
  /// failing rank threw.
  LocalGroup(const checkpoint::Checkpoint&, const policy::Model&, const Cuts&, DType precision, int64_t kv_blocks);
  ~LocalGroup();
  Rank& leader() { return *ranks_[0]; }
  const std::vector<std::shared_ptr<comm::Channel>>& channels() const { return channels_; }
  const std::vector<std::unique_ptr<Rank>>& ranks() const { return ranks_; }
  /// Sends the message to the followers and runs it on rank 0.
  StepResult run(const StepMessage&);

 private:
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::vector<std::shared_ptr<comm::Channel>> channels_;
  std::vector<std::thread> threads_;
};

}  // namespace pm::engine
