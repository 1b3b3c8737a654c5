// One rank's side of the engine: keeps the block tables of its slots, turns a step message into a batch, runs it.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/output.h"
#include "worker/engine/step.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// For StepMessage::bucket: what rank 0's executor says of the message's entries, if they are one token each of sequences that have begun or begin with one.
int32_t bucket_of(const StepMessage&, const parallel::Executor&);

class Rank {
 public:
  /// `threads`: of the loops of a step, on whatever thread it runs; 0: as they are.
  explicit Rank(std::unique_ptr<parallel::Executor> executor, int threads = 0) : executor_(std::move(executor)), threads_(threads) {}
  /// Runs one step together with the other ranks of the lane. Throws Error{DoesNotFit, "OOMKilled"} when its device has no memory for it.
  StepOutput run(const StepMessage&);
  /// The life of a rank other than 0: runs what the channel brings until a message says stop. `results`: where the output of each goes; nullptr: nowhere.
  /// `after_step` is called with the step's number.
  void follow(comm::Channel&, comm::Channel* results = nullptr, const std::function<void(int64_t)>& after_step = {});
  parallel::Executor& executor() { return *executor_; }

 private:
  struct Slot {
    std::vector<int32_t> blocks, source_blocks;
    int64_t source_tokens = 0;         ///< encoder-decoder: what cross-attention sees
  };
  StepOutput carry_out(const StepMessage&);
  models::StepRows assemble(const StepMessage&);
  void begin_sources(const StepMessage&, models::StepRows&);
  void score(const StepMessage&, const at::Tensor& hidden, StepOutput&);
  std::unique_ptr<parallel::Executor> executor_;
  int threads_;
  std::vector<Slot> slots_;
};

}  // namespace pm::engine
