// SPDX-License-Identifier: Apache-2.0
// A rank's side of the engine: keeps the block tables of the slots, turns step messages into batches and runs them.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/protocol/step_message.h"
#include "worker/engine/protocol/step_output.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// Returns the value for StepMessage::bucket: the executor's CUDA graph bucket if every entry is a single decode token,
/// otherwise 0.
int32_t graph_bucket(const StepMessage&, parallel::Executor&);

/// One rank: an executor and the block tables of its slots.
class Rank {
 public:
  /// `threads` is the number of CPU threads per step; 0 leaves it unchanged.
  explicit Rank(std::unique_ptr<parallel::Executor> executor, int threads = 0)
      : executor_(std::move(executor)), threads_(threads) {}
  /// Runs one step together with the other ranks of the data-parallel rank. Throws Error{OOMKilled} if
  /// the device has too little memory for it. `states` [tokens of the entries, hidden] F32 is what the input of a
  /// module for multi-token prediction joins to the tokens; of other models it is undefined.
  StepOutput run(const StepMessage&, const at::Tensor& states = {});
  /// Runs the steps that arrive on the channel until a message says stop; for ranks other than 0. Sends the output of
  /// each step to `results` unless it is nullptr. Calls `after_step` with the step number.
  void follow(comm::Channel&, comm::Channel* results = nullptr, const std::function<void(int64_t)>& after_step = {});
  parallel::Executor& executor() { return *executor_; }
  /// Throws std::logic_error if the model does not generate.
  parallel::GenerationExecutor& generation();

 private:
  struct Slot {
    std::vector<int32_t> blocks, source_blocks;
    int64_t source_tokens = 0;  ///< encoder-decoder: length of the encoder's output that cross-attention reads
  };
  StepOutput execute(const StepMessage&, const at::Tensor& states);
  layers::AdapterSlots& adapters();
  void select_adapters(const std::vector<StepEntry>&);
  at::Tensor head_rows(const at::Tensor& hidden, const std::vector<int64_t>& rows);
  models::StepRows build_rows(const StepMessage&);
  void add_encoder_rows(const StepMessage&, models::StepRows&);
  void compute_outputs(const StepMessage&, parallel::SamplingExecutor&, const at::Tensor& hidden, StepOutput&);
  void score_prompts(const StepMessage&, parallel::SamplingExecutor&, const at::Tensor& hidden, StepOutput&);
  std::unique_ptr<parallel::Executor> executor_;
  int threads_;
  std::vector<Slot> slots_;
  std::vector<int32_t> row_adapters_;  ///< of the rows of the step's entries
};

}  // namespace pm::engine
