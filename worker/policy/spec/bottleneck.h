// SPDX-License-Identifier: Apache-2.0
// Narrower states on which the blocks of a layer run.
#pragma once
#include <cstdint>
#include <optional>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The blocks of a layer run on states of `width` numbers, which are made of the layer's own and lead back to them:
/// x + output(blocks(input(x))) (Sun et al. 2020, "MobileBERT").
struct Bottleneck {
  int64_t width = 0;
  Linear input;  ///< [width, hidden]: the states to which blocks add
  std::optional<Norm> input_norm;
  std::optional<Linear> attention;  ///< [width, hidden]: what queries and keys read
  std::optional<Norm> attention_norm;
  bool wide = false;  ///< attention reads the layer's own states, but for what `attention` makes; else the narrow ones
  Linear output;      ///< [hidden, width]
  std::optional<Norm> output_norm;  ///< of the sum with the layer's own states

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
