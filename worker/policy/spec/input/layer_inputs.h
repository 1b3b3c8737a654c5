// SPDX-License-Identifier: Apache-2.0
// What each layer of a stack reads of the tokens beside its states.
#pragma once
#include <cstdint>
#include <optional>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// For each token and each layer a vector: (table[token] * scale + norm(projection(x) * projection_scale)) * factor,
/// where x is the input of the first layer (Gemma 3n's and Gemma 4's per-layer embeddings).
struct LayerInputs {
  int64_t width = 0;  ///< of one layer's vector
  Param table;        ///< [vocabulary, layers x width]
  Linear projection;  ///< [layers x width, hidden]
  double scale = 1, projection_scale = 1, factor = 1;
  std::optional<Norm> norm;  ///< of each layer's vector

  void collect(ParamCollector& all) const {
    all.add(table);
    all.add(projection);
    all.add(norm);
  }
};

}  // namespace pm::policy
