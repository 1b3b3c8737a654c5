// SPDX-License-Identifier: Apache-2.0
// The step that the batcher is planning, for its source files.
#pragma once
#include <vector>

#include "worker/engine/scheduling/batcher.h"

namespace pm::engine {

/// The step under construction.
struct Batcher::Plan {
  StepMessage message;
  std::vector<Planned> planned;
  std::vector<SamplingInput>& sampling_inputs;
  int64_t token_budget;
  /// What sequences may still draft in this step.
  struct Drafts {
    int64_t rows = 0, blocks = 0;  ///< of all sequences that follow
    int64_t most = 0;              ///< of each sequence
    DraftPrice price;
  };
  Drafts drafts = {};
};

}  // namespace pm::engine
