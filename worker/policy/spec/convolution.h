// SPDX-License-Identifier: Apache-2.0
// Convolutions over time: those that turn audio into the frames of a stack, and the one that embeds positions.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/policy/spec/enums.h"
#include "worker/policy/spec/param.h"

namespace pm::policy {

/// One convolution: act(norm(kernel * x)), or a gated linear unit of it.
struct Convolution {
  Linear kernel;  ///< [channels out, channels in, taps]
  int64_t stride = 1, padding = 0;
  std::optional<Norm> norm;
  bool norm_over_time = false;  ///< the norm is one of each channel over all frames of a row, padding included (group
                                ///< norm with one channel per group); else one of each frame over its channels
};

/// The convolutions that make the frames of a stack from the audio of a request.
struct Convolutions {
  std::string input;     ///< name in the request: samples [rows, samples], or filter banks [rows, frames, bins], with
                         ///< `bins_first` [rows, bins, frames]
  std::string features;  ///< the output with the normalized frames before the projection; empty: there is none
  int64_t bins = 0;      ///< channels of filter banks; 0: samples, which have one channel
  bool bins_first = false;
  int64_t exact_length = 0;              ///< the only length of a row, all of which counts, padding too; 0: any length
  std::optional<Activation> activation;  ///< after each norm
  bool gated = false;  ///< a gated linear unit instead: the first half of the channels times the sigmoid of the second
  std::vector<Convolution> layers;

  /// Returns the number of frames that come of `length` samples (frames of filter banks); 0: it is too short.
  int64_t frames(int64_t length) const;
  /// Returns the smallest length that gives so many frames.
  int64_t length(int64_t frames) const;
  void collect(ParamCollector&) const;
};

/// A convolution beside a layer: norm(layer(x) + act(kernel * x)), where what is no token is zero (DeBERTa-v2).
struct ConvolutionBranch {
  Linear kernel;  ///< [hidden, hidden / groups, taps], an odd number of taps
  int64_t groups = 1;
  Activation activation = Activation::Tanh;
  std::optional<Norm> norm;  ///< of the sum

  void collect(ParamCollector&) const;
};

/// The statistics of batch normalization, at rest: (x - mean) / sqrt(variance + eps) * weight + bias for each channel.
struct BatchNorm {
  Param mean, variance, weight, bias;
  double eps = 1e-5;
};

/// Positions as a convolution: x + act(kernel * batch_norm(x)), then a norm. Frames of padding are zero in x. The
/// kernel is as long as the input is padded, with a tap less on the right where the number of taps is even.
struct PositionalConvolution {
  Linear kernel;              ///< [hidden, hidden / groups, taps]; with `gain` the direction of each tap
  std::optional<Param> gain;  ///< [taps]: the norm of the kernel at each tap (weight normalization, Salimans and Kingma
                              ///< 2016, over all but the last dimension)
  std::optional<BatchNorm> batch_norm;
  std::optional<Norm> norm;  ///< of the sum
  int64_t groups = 1;
  Activation activation = Activation::Gelu;

  void collect(ParamCollector&) const;
};

}  // namespace pm::policy
