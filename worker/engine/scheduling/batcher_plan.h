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
  double row_price = 0;    ///< as Planned::row_price
  bool comparable = true;  ///< as Planned::comparable
};

}  // namespace pm::engine
