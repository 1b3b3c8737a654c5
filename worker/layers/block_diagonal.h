// SPDX-License-Identifier: Apache-2.0
// The product with a block-diagonal matrix: a convolution of kernel size 1 in groups.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "worker/layers/loader.h"
#include "worker/layers/weight.h"

namespace pm::layers {

/// One rank's share of a block-diagonal matrix. The outputs of a block depend on the inputs of the same block only, so
/// that a rank multiplies no more than its share of the stored numbers. A rank's heads or columns need not begin nor
/// end where a block does.
class BlockDiagonal {
 public:
  BlockDiagonal(const policy::Param&, Loader&);
  /// Where outputs are sharded: x [tokens, in] -> [tokens, local out]. Where inputs are: x [tokens, local in] -> this
  /// rank's partial sum [tokens, out], zero in blocks of which it has no input. The result is in F32.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  /// What the rank has of one block: columns of x, columns of the result, and where its part of the weight begins.
  struct Block {
    Range inputs, outputs;
    int64_t first = 0;
    at::Tensor part;  ///< of sharded inputs: the part as a matrix of its own; undefined where it is gathered
  };
  bool by_inputs_;  ///< inputs are sharded, else outputs
  int64_t outputs_;
  Weight weight_;  ///< empty where blocks have parts
  std::vector<Block> blocks_;
};

}  // namespace pm::layers
