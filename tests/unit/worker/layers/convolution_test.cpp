// SPDX-License-Identifier: Apache-2.0
// The fold of weight normalization against its formula in fp64, and lengths of convolutions against ATen's.
#include "worker/layers/convolution/convolution.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

namespace pm::layers {
namespace {

TEST(FoldGain, GivesEachTapItsNorm) {
  const at::Tensor kernel = at::linspace(-2, 3, 4 * 2 * 3).reshape({4, 2, 3}), gain = at::linspace(0.5, -1.5, 3);
  const at::Tensor folded = fold_gain(kernel, gain);
  for (int64_t tap = 0; tap < 3; ++tap) {
    double square = 0;
    for (int64_t i = 0; i < 8; ++i) square += std::pow(kernel.select(2, tap).flatten()[i].item<double>(), 2);
    for (int64_t i = 0; i < 8; ++i) {
      const double wanted =
          gain[tap].item<double>() * kernel.select(2, tap).flatten()[i].item<double>() / std::sqrt(square);
      EXPECT_NEAR(folded.select(2, tap).flatten()[i].item<double>(), wanted, 1e-6);
    }
  }
}

TEST(FoldGain, OfAFoldedKernelChangesNothing) {
  const at::Tensor kernel = at::linspace(-2, 3, 24).reshape({4, 2, 3}), gain = at::linspace(0.5, 1.5, 3);
  const at::Tensor once = fold_gain(kernel, gain);
  EXPECT_LT((fold_gain(once, gain) - once).abs().max().item<double>(), 1e-7);
}

TEST(Convolutions, HaveTheLengthsOfATen) {
  for (const int64_t padding : {0, 2}) {
    policy::Convolutions convolutions;
    for (const int64_t taps : {5, 5}) {
      policy::Convolution layer{.kernel = {}, .stride = 2, .padding = padding, .norm = {}};
      layer.kernel.weight.shape = {1, 1, taps};
      convolutions.layers.push_back(layer);
    }
    for (int64_t length = 1; length < 40; ++length) {
      at::Tensor x = at::ones({1, 1, length});
      for (size_t layer = 0; layer < 2 && x.numel() > 0; ++layer) {
        const int64_t stride = 2;
        x = x.size(2) + 2 * padding < 5 ? at::ones({1, 1, 0}) : at::conv1d(x, at::ones({1, 1, 5}), {}, stride, padding);
      }
      EXPECT_EQ(convolutions.frames(length), x.size(2)) << length;
    }
    for (int64_t frames = 1; frames < 9; ++frames) {
      const int64_t least = convolutions.length(frames);
      EXPECT_EQ(convolutions.frames(least), frames);
      EXPECT_LT(least == 1 ? 0 : convolutions.frames(least - 1), frames);
    }
  }
}

}  // namespace
}  // namespace pm::layers
