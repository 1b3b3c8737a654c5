// SPDX-License-Identifier: Apache-2.0
// Linears and tables of integer-only inference: weights of 8 bits with a scale for each output, tables with one scale.
#pragma once
#include <optional>
#include <vector>

#include "worker/comm/communicator.h"
#include "worker/layers/lookup.h"
#include "worker/ops/integers/integer_functions.h"
#include "worker/policy/spec/activation_ranges.h"

namespace pm::layers {

/// Returns the scale [1] at which integers of `bits` fill the range.
at::Tensor activation_scale(const policy::ActivationRange&, int bits, Loader&);

/// A column-parallel linear, or several that are stacked. Weights that the rank holds are integers from loading on;
/// gathered ones become integers tile by tile.
class QuantizedColumns {
 public:
  QuantizedColumns(const std::vector<const policy::Linear*>&, Loader&);
  /// [tokens, in] -> [tokens, local out], with a scale for each output. What is not an integer times the scale of x is
  /// multiplied as it is.
  ops::ScaledIntegers operator()(const ops::ScaledIntegers& x) const;

 private:
  Weight bias_, weight_;  ///< in the order in which they are used
  at::Tensor scale_;      ///< [local out]; undefined: the weight is gathered
};

/// A row-parallel linear. Its inputs are rounded to the integers that they stand for, so that partial sums are exact
/// below 2^24 and every number of ranks gives the same result. A rank has some inputs of each output, so the scales are
/// those of the whole matrix.
class QuantizedRows {
 public:
  QuantizedRows(const policy::Linear&, Loader&);
  /// [tokens, local in] -> [tokens, out], with a scale for each output.
  ops::ScaledIntegers operator()(const ops::ScaledIntegers& x, comm::Communicator&) const;

 private:
  Weight weight_;
  at::Tensor bias_;
  at::Tensor scale_;  ///< [out]; undefined: the weight is gathered
};

/// A table of embeddings in integers of 8 bits.
class QuantizedTable {
 public:
  QuantizedTable(const policy::Param&, Loader&);
  /// Looks up [tokens] int64 -> [tokens, width] F32, zero where another rank has the row.
  at::Tensor partial(const at::Tensor& rows) const;
  const at::Tensor& scale() const { return scale_; }  ///< [1]

 private:
  Table table_;
  at::Tensor scale_;
};

}  // namespace pm::layers
