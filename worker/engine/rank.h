// One rank's side of the engine: keeps the block tables of its slots, turns a step message into a batch, runs it; rank 0 also chooses tokens.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "worker/comm/channel.h"
#include "worker/engine/sampler.h"
#include "worker/engine/step.h"
#include "worker/parallel/executor.h"

namespace pm::engine {

/// How rank 0 chooses after an entry that wants scores. Spans and pointers live until the step is done.
struct Choosing {
  const Sampling* sampling = nullptr;
  History history;
  int64_t sequence = 0;                ///< which of its request's sequences: the random numbers' second counter
  int64_t draws = 1;                   ///< tokens for sequences `sequence`, `sequence` + 1, ... that begin alike
  int64_t logprobs = -1;               ///< as Request::logprobs
  std::optional<Beams> beams;          ///< a beam search: candidates instead of tokens
};

/// What came after an entry that wanted something.
struct Chosen {
  std::vector<Token> tokens;
  std::vector<Candidate> candidates;
};

/// What one step gives, on rank 0; empty elsewhere.
struct StepResult {
  std::vector<Chosen> chosen;          ///< one per entry that wants something, in order
  std::vector<Arrays> outputs;         ///< of each request of the message's forward job
};

class Rank {
 public:
  /// `threads`: of the loops of a step, on whatever thread it runs; 0: as they are.
  explicit Rank(std::unique_ptr<parallel::Executor> executor, int threads = 0) : executor_(std::move(executor)), threads_(threads) {}
  /// Runs one step together with the other ranks of the group. `choosing`: on rank 0 one per entry that wants scores, in order.
  StepResult run(const StepMessage&, std::span<const Choosing> choosing = {});
  /// The life of a rank other than 0: runs what the channel brings until a message says stop. `after_step` is called with the step's number.
  void follow(comm::Channel&, const std::function<void(int64_t)>& after_step = {});
  parallel::Executor& executor() { return *executor_; }

 private:
  struct Slot {
    std::vector<int32_t> blocks, source_blocks;
    int64_t source_tokens = 0;         ///< encoder-decoder: what cross-attention sees
  };
  models::StepRows assemble(const StepMessage&);
  void begin_sources(const StepMessage&, models::StepRows&);
  std::vector<Arrays> forward(const ForwardJob&);
  std::vector<Chosen> choose(const StepMessage&, std::span<const Choosing>, const at::Tensor& hidden);
  std::unique_ptr<parallel::Executor> executor_;
  int threads_;
  std::vector<Slot> slots_;
};

}  // namespace pm::engine
