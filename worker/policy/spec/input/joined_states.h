// SPDX-License-Identifier: Apache-2.0
// The states of another model beside the embeddings of tokens.
#pragma once
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// projection(token_norm(x) | state_norm(s)): x is the embedding of a token, and s the state behind the last layer of
/// another model at the token before (DeepSeek-AI, "DeepSeek-V3", 2024, equation 21).
struct JoinedStates {
  Norm token_norm, state_norm;
  Linear projection;  ///< [hidden, 2 x hidden]

  void collect(ParamCollector& all) const {
    for (const Norm* norm : {&token_norm, &state_norm}) {
      all.add(norm->weight);
      all.add(norm->bias);
    }
    all.add(projection);
  }
};

}  // namespace pm::policy
