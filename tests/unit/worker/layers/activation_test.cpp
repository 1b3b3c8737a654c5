// SPDX-License-Identifier: Apache-2.0
// Activations against their formulas in fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/layers/feed_forward/mlp.h"

namespace pm::layers {
namespace {

using policy::Activation;

TEST(Activation, FollowsItsFormula) {
  const at::Tensor x = at::linspace(-6, 6, 101);
  const std::map<Activation, std::function<double(double)>> formulas{
      {Activation::Gelu, [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }},
      {Activation::GeluNew,
       [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }},
      {Activation::QuickGelu, [](double v) { return v / (1 + std::exp(-1.702 * v)); }},
      {Activation::Silu, [](double v) { return v / (1 + std::exp(-v)); }},
      {Activation::Relu, [](double v) { return std::max(v, 0.0); }},
      {Activation::Tanh, [](double v) { return std::tanh(v); }},
      {Activation::Relu2, [](double v) { return v > 0 ? v * v : 0; }}};
  EXPECT_EQ(formulas.size(), policy::Words<Activation>::all.size());
  for (const auto& [activation, formula] : formulas) {
    const at::Tensor y = activate(activation, x);
    for (int64_t i = 0; i < x.size(0); ++i)
      EXPECT_NEAR(y[i].item<float>(), formula(x[i].item<float>()), 2e-6) << to_string(activation);
  }
}

TEST(Activation, MayBeAbsent) {
  const at::Tensor x = at::linspace(-6, 6, 5);
  EXPECT_TRUE(activate(std::nullopt, x).is_same(x));
}

}  // namespace
}  // namespace pm::layers
