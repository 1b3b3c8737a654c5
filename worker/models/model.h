// SPDX-License-Identifier: Apache-2.0
// A model of any kind: its stacks in order, its heads, and the data flow between them.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/stages.h"
#include "worker/models/heads/scoring.h"
#include "worker/models/inputs.h"
#include "worker/models/stack.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// The rows of one step of generation: those of the generating stack and, for an encoder-decoder, the encoder rows of
/// sequences that start.
struct StepRows {
  layers::Batch batch;
  std::optional<layers::Batch> source;  ///< encoder rows of sequences that start
  layers::Source cross;                 ///< their slots, and the source span of every sequence

  /// Moves the tensors to another device.
  StepRows on(at::Device) &&;
};

/// The state that pipeline stages pass on, by name: the states of stacks so far, and what was captured. It is empty
/// before the first stage.
using StageState = std::map<std::string, at::Tensor>;

/// One rank's shard of a model: of all its layers, or of the layers of one pipeline stage.
class Model {
 public:
  /// Loads the rank's parameters. `layers` gives the layers of each stack, in the model's order. Throws as check().
  Model(const policy::Model&, const Layers& layers, layers::Loader&);
  /// Throws Error{UnknownArchitecture} for a combination of options that this version does not run. Reads no
  /// tensor.
  static void check(const policy::Model&);
  /// Returns true when the model can generate: it is to generate and has an LM head.
  static bool generates(const policy::Model&);
  /// Returns whether steps of generation read keys and values of earlier ones; false: each has the whole sequences.
  static bool caches(const policy::Model&);
  /// Returns whether a forward pass can capture attentions: that of chunks has no places in a matrix of tokens.
  static bool shows_attentions(const policy::Model&);
  /// Returns the stack that generates: the one that the LM head reads.
  static const policy::Stack& generating_stack(const policy::Model&);
  /// Returns the encoder whose states the generating stack attends to; nullptr where there is none.
  static const policy::Stack* source_stack(const policy::Model&);

  /// Runs a forward pass over the inputs of one or more requests, whose rows go through the stacks together, and
  /// advances `handed`. Returns, on rank 0 of the last stage, the outputs of each request under Hugging Face's names;
  /// elsewhere they are empty.
  std::vector<Arrays> forward(std::span<const Inputs>, const OutputSelection&, StageState& handed,
                              comm::Communicator&) const;
  /// Returns true when forward() of these reads the matrix of an LM head.
  bool reads_vocabulary(std::span<const Inputs>, const OutputSelection&, comm::Communicator&) const;
  /// Advances `handed` by one step of generation. After the last stage it has the states of the generating stack's
  /// rows [tokens, hidden] in F32 under the stack's name, of the stream that its head scores. `cache` may be null where
  /// no layer of that stack is.
  void step(StepRows&, layers::KvCache* cache, StageState& handed, comm::Communicator&) const;
  /// Returns true on the last stage, which has the last layer and all heads.
  bool last() const { return last_; }
  /// Returns the LM head, or nullptr where the model does not generate and before the last stage.
  const VocabularyHead* head() const { return head_; }

 private:
  void run_stack(size_t number, std::vector<RequestForward>&, StageState&) const;
  static void pool(const policy::Stack&, const Stack& here, const std::vector<RequestForward*>&,
                   const std::vector<const StackInput*>&, StageState&);
  const Stack* stack(const std::string& name) const;
  const policy::Model& policy_;
  std::vector<std::unique_ptr<Stack>> stacks_;  ///< nullptr: this stage has none of its layers
  bool last_;
  std::vector<std::unique_ptr<Head>> heads_;
  const VocabularyHead* head_ = nullptr;
};

}  // namespace pm::models
