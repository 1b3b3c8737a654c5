// SPDX-License-Identifier: Apache-2.0
// The input of a stack that reads the states of another model beside tokens.
#pragma once
#include "worker/layers/layers.h"
#include "worker/policy/spec/input/joined_states.h"

namespace pm::layers {

/// projection(token_norm(x) | state_norm(states)).
class StateJoin {
 public:
  StateJoin(const policy::JoinedStates&, Loader&);
  /// Returns [tokens, hidden] F32 for the embeddings x and the states beside them, both [tokens, hidden] F32. Throws
  /// std::logic_error unless the states have that shape.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& states) const;

 private:
  Norm token_norm_, state_norm_;
  Linear projection_;
};

}  // namespace pm::layers
