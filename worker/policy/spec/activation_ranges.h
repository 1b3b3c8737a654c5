// SPDX-License-Identifier: Apache-2.0
// Integer-only inference: the ranges of activations, which training measured. worker/ops/integers/integer_functions.h
// has the arithmetic.
#pragma once
#include <optional>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The smallest and the largest value of an activation. Integers of its bits fill the range, evenly around 0.
struct ActivationRange {
  Param low, high;

  void collect(ParamCollector&) const;
};

/// Of an input that is the sum of a token's, a type's and a position's row: rows of 8 bits, their sums of 16, the
/// norm's result of 8.
struct QuantizedInput {
  ActivationRange sum, output;
  std::optional<Param> shift;  ///< of the norm; absent: it computes in floating point, and its result is rounded

  void collect(ParamCollector&) const;
};

/// Of an attention block: 8 bits, but 16 of exponents and 22 of the sum with the residual.
struct QuantizedAttention {
  /// The range of the stack's input, by which every layer takes the states that it reads, as transformers does, though
  /// those behind the first layer have another.
  ActivationRange input;
  ActivationRange query, key, value;
  std::optional<ActivationRange> exponents;  ///< in the integers that the softmax makes of scores; absent: it computes
                                             ///< in floating point
  ActivationRange heads;                     ///< what the output projection reads
  ActivationRange sum, output;
  std::optional<Param> shift;  ///< as QuantizedInput's

  void collect(ParamCollector&) const;
};

/// Of a feed-forward block: 8 bits, but 22 of the sum with the residual, which is the block's input at the range
/// `input`.
struct QuantizedMlp {
  ActivationRange input;
  ActivationRange activation, down;  ///< what the activation function gives, then what the second linear reads
  bool float_activation = false;     ///< the activation function computes in floating point
  ActivationRange sum, output;
  std::optional<Param> shift;  ///< as QuantizedInput's

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
