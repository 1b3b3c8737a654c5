// A model of any topology: its stacks in order, its heads, and how they feed each other.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/stages.h"
#include "worker/models/head.h"
#include "worker/models/inputs.h"
#include "worker/models/stack.h"

namespace pm::models {

/// What a forward pass is asked for.
struct Wanted {
  bool hidden_states = false, attentions = false;
  std::vector<std::string> outputs;   ///< names; empty: those of Hugging Face's class
};

/// One generating step: the rows of the stack that generates, and what begins with it for an encoder-decoder.
struct StepRows {
  layers::Batch batch;
  std::optional<layers::Batch> source;      ///< encoder rows of sequences that begin
  layers::Source cross;                     ///< slots of these, and every sequence's span of its source

  /// The same rows with their tensors on another device.
  StepRows on(at::Device) &&;
};

/// What the stages of a pipeline hand to each other, by name: the states of stacks, as far as they have come, and what was captured on the way. What is not
/// there is absent. Empty before the first stage.
using Handover = std::map<std::string, at::Tensor>;

/// One rank's share of a model: of all its layers, or of those of one stage of a pipeline.
class Model {
 public:
  /// Loads the rank's parameters. `layers`: of each stack, in the model's order. Throws as check().
  Model(const policy::Model&, const Layers& layers, layers::Loader&);
  /// Throws Error{Model, "UnknownArchitecture"} for a topology or block option that this version does not run; reads nothing.
  static void check(const policy::Model&);
  /// Whether it can generate: an architecture of task generate.
  static bool generates(const policy::Model&);
  /// The stack that generates: the one that the language-model head reads.
  static const policy::Stack& generator(const policy::Model&);

  /// One pass over the inputs of one or more requests, whose rows go through the stacks together; `handed` is taken on. On rank 0 of the last stage the
  /// outputs of each under Hugging Face's names, empty elsewhere.
  std::vector<Arrays> forward(std::span<const Inputs>, const Wanted&, Handover& handed, comm::Communicator&) const;
  /// Whether forward() of these reads the matrix of a head over the vocabulary.
  bool reads_vocabulary(std::span<const Inputs>, const Wanted&, comm::Communicator&) const;
  /// Takes `handed` on by one generating step; after the last stage it has the states of the generating stack's rows [tokens, hidden] fp32 under the stack's
  /// name. `cache` may be absent where no layer of that stack is.
  void step(StepRows&, layers::KvCache* cache, Handover& handed, comm::Communicator&) const;
  /// Whether outputs are made here: the last layer and all heads are.
  bool last() const { return last_; }
  /// The language-model head; nullptr where the model does not generate, and before the last stage.
  const Head* head() const { return head_; }

 private:
  struct Pass;
  void run_stack(size_t number, std::vector<Pass>&, Handover&) const;
  static void pool(const policy::Stack&, const Stack& here, const std::vector<Pass*>&, const std::vector<const Feed*>&, Handover&);
  static void run_head(const policy::Head&, const Head&, std::vector<Pass>&);
  const Stack* stack(const std::string& name) const;
  const policy::Model& policy_;
  std::vector<std::unique_ptr<Stack>> stacks_;   ///< nullptr: none of its layers is here
  bool last_;
  std::vector<std::unique_ptr<Head>> heads_;
  const Head* head_ = nullptr;
};

}  // namespace pm::models
