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

/// What one step gives.
struct StepResult {
  std::vector<int32_t> ids;            ///< one per entry with sample=true, in order; on every rank
  Arrays outputs;                      ///< of the message's forward job, on rank 0
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
  struct Slot {
    std::vector<int32_t> blocks, source_blocks;
    int64_t source_tokens = 0;         ///< encoder-decoder: what cross-attention sees
    int32_t carry = -1;
    Sampling sampling;
    int64_t prompt = 0;
    std::vector<int32_t> tokens;       ///< of the sequence, when its choices look back
  };
  models::StepRows assemble(const StepMessage&);
  void begin_sources(const StepMessage&, models::StepRows&);
  Arrays forward(const ForwardJob&);
  std::vector<int32_t> sample(const StepMessage&, const at::Tensor& hidden);
  int32_t forced(const StepEntry&) const;
  void choose_rows(const at::Tensor& scores, const std::vector<const StepEntry*>&, at::Tensor& chosen) const;
  std::unique_ptr<parallel::Executor> executor_;
  std::vector<Slot> slots_;
};

}  // namespace pm::engine
