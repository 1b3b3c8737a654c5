// SPDX-License-Identifier: Apache-2.0
// Embeds dense vectors as the rows of a stack.
#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

#include "worker/layers/layers.h"
#include "worker/policy/spec/input/dense_vectors.h"

namespace pm::layers {

/// The mean of norm(projection(part)) over the parts of vectors. Every rank holds the projections in full.
class VectorInput {
 public:
  VectorInput(const policy::Vectors&, Loader&);
  /// One tensor [vectors, width of the part] F32 for each part -> [vectors, hidden] F32.
  at::Tensor operator()(const std::vector<at::Tensor>& parts) const;

 private:
  struct Part {
    Linear projection;
    std::optional<Norm> norm;
  };
  std::vector<Part> parts_;
};

}  // namespace pm::layers
