// Executes a plan on one rank: the seam between the engine, which decides what runs, and a strategy, which decides where.
#pragma once
#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "worker/comm/communicator.h"
#include "worker/models/model.h"
#include "worker/ops/draw.h"

namespace pm::parallel {

/// The best-scored or the drawn token of each row: [rows] int64, on the executor's device.
using Tokens = at::Tensor;

/// What a rank is going to be asked in a step.
struct Coming {
  bool tokens = false, source = false;   ///< step(), and with an encoder's rows
  bool best = false, scores = false;     ///< greedy(), logits()
  int64_t bucket = 0;                    ///< as bucket() of rank 0 said
  std::span<const Arrays> inputs;        ///< forward(); empty: not asked
  models::Wanted wanted;
};

/// Steps as recorded launches (decode_graphs.h), since the rank has its KV blocks.
struct GraphCounts { int64_t recorded = 0, replayed = 0; };   ///< buckets, steps

/// One rank's part of a strategy. All ranks of a lane call the same functions with the same batches, in the same order; a stage of a pipeline may be ahead
/// of those after it. Results come out on tensor rank 0 of the last stage and are empty or undefined elsewhere.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Throws Error{Request, "InvalidRequest"} for inputs that forward() cannot take; computes nothing. From any thread.
  virtual void check(const Arrays& inputs) const = 0;
  /// Around the calls of a step, on every rank: ranks that bring weights together agree on what any of them needs, and take part in it, with work of their own or not.
  virtual void begin(const Coming&) {}
  virtual void finish() {}
  /// One pass without a cache over the inputs of one or more requests: the outputs of each.
  virtual std::vector<Arrays> forward(std::span<const Arrays> inputs, const models::Wanted&) = 0;
  /// Copies keys and values of all layers between KV blocks: pairs (from, to).
  virtual void copy_blocks(std::span<const int32_t> pairs) = 0;
  /// One generating step: hidden states after the last layer [tokens, hidden] fp32, on all ranks of the last stage.
  virtual at::Tensor step(models::StepRows&) = 0;
  /// Rank 0 says how a step of one token each of so many sequences goes, and its message tells all ranks: as the recorded launches for so many places, or, 0, kernel by kernel.
  virtual int64_t bucket(int64_t /*sequences*/) const { return 0; }
  /// From any thread.
  virtual GraphCounts graphs() const { return {}; }
  virtual bool generates() const = 0;
  /// Whether this is the last stage: greedy() and logits() are called there only.
  virtual bool last() const { return true; }
  /// argmax over the whole vocabulary without gathering it; ties go to the smaller id.
  virtual Tokens greedy(const at::Tensor& hidden) = 0;
  /// All scores [rows, vocabulary] fp32.
  virtual at::Tensor logits(const at::Tensor& hidden) = 0;
  /// Whether draw() is there: tokens are chosen where the scores are.
  virtual bool draws() const { return false; }
  /// Tokens drawn from the scores of these states, one for each choice. Throws std::logic_error where draws() is false.
  virtual Tokens draw(const at::Tensor& hidden, const ops::Draws&) { throw std::logic_error(std::to_string(hidden.size(0)) + " rows are to be drawn from on a device without a sampler"); }
  /// The tensor group; of ranks that gather weights all of them.
  virtual comm::Communicator& communicator() = 0;
  /// What its tensors are on. Batches come from the processor; scores go back there.
  virtual at::Device device() const { return at::kCPU; }
  virtual int64_t weight_bytes() const = 0;
  virtual int64_t kv_bytes() const = 0;
  /// Gives the KV blocks back and makes so many anew, which hold nothing yet; 0: none. Between steps. Of models that generate.
  virtual void make_blocks(int64_t /*blocks*/) { throw std::logic_error("this executor keeps the KV blocks that it was made with"); }
};

/// What a rank needs to load its part.
struct Shard {
  const checkpoint::Checkpoint* checkpoint = nullptr;
  const policy::Model* model = nullptr;
  const Plan* plan = nullptr;
  int64_t kv_blocks = 0;
  std::shared_ptr<comm::Communicator> communicator;   ///< of all ranks of the plan
  std::function<void(int64_t)> progress;              ///< bytes read so far
  at::Device device = at::kCPU;
  bool graphs = true;                                 ///< decoding steps are recorded where the device's launches can be
};

/// The executor of this rank under the plan's strategy.
std::unique_ptr<Executor> make_executor(const Shard&);

/// What a rank holds is what the planner counted, but for the alignment of each tensor; anything else would make plans lies. Throws std::logic_error.
void check_weights(const Shard&, int64_t planned, int64_t held);

/// Tensor x pipeline: the layers of the rank's stage, cut by heads, FFN columns and vocabulary rows.
std::unique_ptr<Executor> tensor_pipeline(const Shard&);
/// Weight-gathered: a lane of its own, whose weights come together a layer at a time, from all ranks (Sharded) or from the checkpoint's files (Offload).
std::unique_ptr<Executor> weight_gathered(const Shard&);

}  // namespace pm::parallel
