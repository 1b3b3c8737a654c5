// One rank's side of the engine: keeps the block tables of its slots, turns a step message into a batch, runs it, samples.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/step.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// What one step gives. Everything but `ids` is filled on rank 0 only, and only if the message asked for it.
struct StepResult {
  std::vector<int32_t> ids;            ///< one per entry with sample=true, in order; on every rank
  layers::Capture capture;
  at::Tensor logits;                   ///< all_logits: [tokens of the step, vocabulary]
  at::Tensor hidden;                   ///< of every token, when anything was captured
};

class Rank {
 public:
  explicit Rank(std::unique_ptr<parallel::Executor> executor) : executor_(std::move(executor)) {}
  /// Runs one step together with the other ranks of the group.
  StepResult run(const StepMessage&);
  /// The life of a rank other than 0: runs what the channel brings until a message says stop. `after_step` is called with the step's number.
  void follow(comm::Channel&, const std::function<void(int64_t)>& after_step = {});
  parallel::Executor& executor() { return *executor_; }

 private:
  struct Slot { std::vector<int32_t> blocks; int32_t carry = -1; };
  layers::Batch assemble(const StepMessage&);
  std::vector<int32_t> sample(const StepMessage&, const at::Tensor& hidden);
  std::unique_ptr<parallel::Executor> executor_;
  std::vector<Slot> slots_;
};

}  // namespace pm::engine
