// A model of any topology: its stacks in order, its heads, and how they feed each other.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

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
};

/// One rank's share of a model.
class Model {
 public:
  /// Loads the rank's parameters. Throws as check().
  Model(const policy::Model&, layers::Loader&);
  /// Throws Error{Model, "UnknownArchitecture"} for a topology or block option that this version does not run; reads nothing.
  static void check(const policy::Model&);
  /// Whether it can generate: an architecture of task generate.
  static bool generates(const policy::Model&);
  /// The stack that generates: the one that the language-model head reads.
  static const policy::Stack& generator(const policy::Model&);

  /// One pass over the inputs of one or more requests, whose rows go through the stacks together. On rank 0 the outputs of each under Hugging
  /// Face's names, empty elsewhere.
  std::vector<Arrays> forward(std::span<const Inputs>, const Wanted&, comm::Communicator&) const;
  /// Hidden states of the generating stack's rows [tokens, hidden] fp32.
  at::Tensor step(StepRows&, layers::KvCache&, comm::Communicator&) const;
  /// The language-model head; nullptr where the model does not generate.
  const Head* head() const { return head_; }

 private:
  struct Pass;
  void run_stack(const policy::Stack&, std::vector<Pass>&) const;
  const Stack& stack(const std::string& name) const;
  const policy::Model& policy_;
  std::vector<std::unique_ptr<Stack>> stacks_;
  std::vector<std::unique_ptr<Head>> heads_;
  const Head* head_ = nullptr;
};

}  // namespace pm::models
