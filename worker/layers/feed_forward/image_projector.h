// SPDX-License-Identifier: Apache-2.0
// Brings the states of images to the width of the decoder among whose tokens they stand.
#pragma once
#include <array>
#include <optional>

#include "worker/layers/feed_forward/mlp.h"
#include "worker/layers/layers.h"
#include "worker/policy/spec/input/image_tokens.h"

namespace pm::layers {

class ImageProjector {
 public:
  /// `patches` are the rows and columns of patches of an image.
  ImageProjector(const policy::ImageProjector&, std::array<int64_t, 2> patches, Loader&);
  /// [images x length, hidden] F32 -> [images x rows, hidden of the decoder] F32.
  at::Tensor operator()(const at::Tensor& states, int64_t length) const;
  /// [patches, hidden] F32, those of a square one behind another -> [squares, hidden of the decoder] F32.
  at::Tensor of_squares(const at::Tensor& states) const;

 private:
  at::Tensor projected(const at::Tensor& x) const;
  int64_t skipped_, pooled_, merged_;
  bool norm_merged_, by_channel_;
  std::array<int64_t, 2> patches_;
  std::optional<Norm> norm_;
  std::optional<Linear> merging_;
  Linear first_;
  std::optional<policy::Activation> activation_;
  std::optional<Linear> last_;
};

}  // namespace pm::layers
