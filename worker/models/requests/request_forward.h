// SPDX-License-Identifier: Apache-2.0
// One request's part of a forward pass: what its stacks and heads have computed so far, and its outputs under Hugging
// Face's names.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "worker/base/array.h"
#include "worker/layers/layers.h"
#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Selects the outputs of a forward pass.
struct OutputSelection {
  bool hidden_states = false, attentions = false;
  std::vector<std::string> outputs;  ///< names; empty: those of Hugging Face's class
};

/// The names of a stack's own outputs.
struct StackNames {
  int64_t first_hidden = 0;  ///< the number of the first hidden state; those with a negative one are not put out
  std::string states = "last_hidden_state", pooled = "pooler_output", hidden = "hidden_states.",
              entity_states = "entity_last_hidden_state", entity_hidden = "entity_hidden_states.",
              attentions = "attentions.", cross = "cross_attentions.", global = "global_attentions.",
              stream_states = "last_hidden_state_ngram", stream_hidden = "hidden_states_ngram.",
              stream_attentions = "ngram_attentions.";
  /// Returns the name of the hidden state before layer i, or an empty one where it is not put out.
  std::string hidden_state(size_t i) const;
};
/// Returns the names: without prefix for a model of one stack, with encoder_ and decoder_ around cross-attention, else
/// with the name of the tower. States of two streams are named after the stacks that are joined: the second begins as
/// the output of the first layer, and layers that join them go on counting. `stream` is 1 for the second of them.
StackNames stack_names(const policy::Model&, const policy::Stack&, size_t stream = 0);

struct RequestForward {
  const Inputs& inputs;
  const OutputSelection& wanted;
  comm::Communicator& comm;
  std::map<std::string, at::Tensor> states, pooled,
      vectors;  ///< of stacks, of their poolers, of heads with one vector per sequence
  std::map<std::string, std::vector<at::Tensor>> streams;  ///< states of each stream that predicts following tokens
  std::map<std::string, std::vector<at::Tensor>> hidden;   ///< all hidden states of stacks with heads that mix them
  std::map<std::string, at::Tensor> features;              ///< of stacks that read audio: normalized frames
  std::vector<at::Tensor> maps;                            ///< layers::Capture::maps of this request
  Arrays outputs;

  /// Returns whether the output `name` is wanted; `by_default` where the request names no outputs.
  bool wants(const std::string& name, bool by_default) const;
  bool wants_any(const std::vector<std::string>& names) const;
  /// Stores an output on rank 0; the other ranks have none.
  void put(const std::string& name, const at::Tensor&);
  /// Selects one state per sequence [sequences, hidden] of a stack's `x` [rows, hidden].
  at::Tensor select(policy::Pool, const policy::Stack&, const at::Tensor& x) const;
};

}  // namespace pm::models
