// SPDX-License-Identifier: Apache-2.0
// Integer-only inference: activations and weights are integers times a scale (Kim et al., "I-BERT", 2021). Integers are
// held as F32, as in transformers' models/ibert/quant_modules.py, whose operations these are one by one, because a
// rounding edge does not forgive another order. All run on any device of ATen.
#pragma once
#include <ATen/core/Tensor.h>

namespace pm::ops {

/// An activation: `values` F32 are integers times `scale` F32, as near as F32 has them. The scale is one number [1], or
/// one for each of the last dimension.
struct ScaledIntegers {
  at::Tensor values, scale;
};

/// Returns the scale at which numbers up to `largest` fill integers of `bits`: largest / (2^(bits - 1) - 1), where
/// `largest` is at least 1e-8.
at::Tensor symmetric_scale(const at::Tensor& largest, int bits);
/// Returns x as integers: round(x / scale), from -n to n - 1 with n = 2^(bits - 1) - 1. `scale` is broadcast to x.
at::Tensor to_integers(const at::Tensor& x, int bits, const at::Tensor& scale);

/// Returns numbers of floating point as integers of `bits` at a scale [1].
ScaledIntegers rounded(const at::Tensor& x, int bits, const at::Tensor& scale);
/// Returns x as integers of `bits` at another scale [1], multiplied in fixed point: by a mantissa of 31 bits and a
/// shift (dyadic arithmetic, Yao et al. 2021). Beyond -n - 1 .. n they are clamped.
ScaledIntegers rescaled(const ScaledIntegers& x, int bits, const at::Tensor& scale);
/// Returns the sum of both, each rescaled, clamped together.
ScaledIntegers rescaled_sum(const ScaledIntegers& x, const ScaledIntegers& added, int bits, const at::Tensor& scale);

/// Returns gelu(x) by a polynomial of the second degree in integers (I-BERT, algorithm 2).
ScaledIntegers integer_gelu(const ScaledIntegers& x);
/// The steps between 0 and 1 in the result of integer_softmax().
constexpr int softmax_steps = 256;
/// Returns the softmax over the last dimension as multiples of 1 / softmax_steps (I-BERT, algorithm 3). Scores 30
/// octaves below the largest, and all below them, count as 2^-30 of it. The integers of the exponents are rescaled to
/// 16 bits at `exponent_scale` [1].
at::Tensor integer_softmax(const ScaledIntegers& scores, const at::Tensor& exponent_scale);
/// Returns the layer norm over the last dimension (I-BERT, algorithm 4), without eps. Differences from the mean are
/// divided by 2^shift [1] before they are squared, as training found it to be necessary for 32 bits.
ScaledIntegers integer_layer_norm(const ScaledIntegers& x, const at::Tensor& weight, const at::Tensor& bias,
                                  const at::Tensor& shift);

}  // namespace pm::ops
