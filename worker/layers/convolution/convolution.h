// SPDX-License-Identifier: Apache-2.0
// Convolutions over time and over images, by ATen in F32. Every rank holds them in full and computes them alike.
#pragma once
#include <vector>

#include "worker/layers/layers.h"
#include "worker/policy/spec/convolution.h"
#include "worker/policy/spec/input/images.h"

namespace pm::layers {

/// The convolutions that turn audio into frames.
class Convolutions {
 public:
  Convolutions(const policy::Convolutions&, Loader&);
  /// Returns the frames [rows, frames, channels] of samples [rows, samples] or filter banks [rows, frames, bins]. Rows
  /// are computed with their padding, one after another: the longest intermediate is that of one row.
  at::Tensor operator()(const at::Tensor& audio) const;

 private:
  struct Layer {
    at::Tensor weight, bias;
    int64_t stride, padding;
    std::optional<Norm> norm;           ///< of each frame
    at::Tensor time_weight, time_bias;  ///< of the norm of each channel over time; undefined: there is none
    double eps;
  };
  at::Tensor run(const Layer&, const at::Tensor& x) const;
  std::vector<Layer> layers_;
  std::optional<policy::Activation> activation_;
  bool gated_, samples_;
};

/// Positions as a convolution.
class PositionalConvolution {
 public:
  PositionalConvolution(const policy::PositionalConvolution&, Loader&);
  /// Returns norm(x + act(kernel * batch_norm(x))) of x [rows, frames, hidden], whose frames of padding are zero.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  at::Tensor weight_, bias_;
  at::Tensor mean_, variance_, scale_, shift_;  ///< of the batch norm; undefined: there is none
  double eps_ = 0;
  int64_t groups_;
  policy::Activation activation_;
  std::optional<Norm> norm_;
};

/// A convolution beside a layer. Ranks share its outputs: each computes its channels, then they exchange them.
class ConvolutionBranch {
 public:
  ConvolutionBranch(const policy::ConvolutionBranch&, Loader&);
  /// Returns norm(state + act(kernel * x)) of x and state [tokens, hidden]. Between tokens that do not stand in
  /// neighboring columns, and around them, are zeros.
  at::Tensor operator()(const at::Tensor& x, const at::Tensor& state, const Batch&, comm::Communicator&) const;

 private:
  Weight bias_, weight_;  ///< in the order in which they are used
  Range own_;             ///< groups of this rank, or outputs where there is one group
  int64_t groups_;
  std::vector<int64_t> channels_;  ///< of every rank
  policy::Activation activation_;
  std::optional<Norm> norm_;
};

/// Returns the kernel with the norm `gain` [taps] at each tap: gain * kernel / ||kernel||, the norm over the first two
/// dimensions of [out, in, taps]. In F32.
at::Tensor fold_gain(const at::Tensor& kernel, const at::Tensor& gain);

/// A convolution over images with batch normalization.
class ImageConvolution {
 public:
  ImageConvolution(const policy::ImageConvolution&, Loader&);
  /// [images, channels, height, width] -> the same, with the channels and sides that come of it.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  at::Tensor kernel_, mean_, variance_, scale_, shift_;
  double eps_;
  int64_t stride_, dilation_;
};

/// The residual network of a stack.
class Backbone {
 public:
  Backbone(const policy::Backbone&, Loader&);
  /// Returns what each stage makes of an image [1, channels, height, width]: maps [1, channels, rows, columns].
  std::vector<at::Tensor> operator()(const at::Tensor& image) const;

 private:
  struct Block {
    std::vector<ImageConvolution> convolutions;
    std::optional<ImageConvolution> shortcut;
  };
  at::Tensor run(const Block&, const at::Tensor& x) const;
  ImageConvolution stem_;
  std::vector<std::vector<Block>> stages_;
  policy::Activation activation_;
};

/// Returns the sines and cosines of visible cells [images, rows, columns] bool: [images, rows, columns, width] F32.
at::Tensor sine_positions(const at::Tensor& cells, int64_t width);

}  // namespace pm::layers
