// Activations against their formulas in fp64.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "worker/base/error.h"
#include "worker/layers/layers.h"

namespace pm::layers {
namespace {

TEST(Activation, FollowsItsFormula) {
  const at::Tensor x = at::linspace(-6, 6, 101);
  const std::map<std::string, std::function<double(double)>> formulas{
      {"gelu", [](double v) { return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0))); }},
      {"gelu_new", [](double v) { return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))); }},
      {"quick_gelu", [](double v) { return v / (1 + std::exp(-1.702 * v)); }},
      {"silu", [](double v) { return v / (1 + std::exp(-v)); }},
      {"relu", [](double v) { return std::max(v, 0.0); }},
      {"tanh", [](double v) { return std::tanh(v); }}};
  for (const auto& [name, formula] : formulas) {
    const at::Tensor y = activate(name, x);
    for (int64_t i = 0; i < x.size(0); ++i) EXPECT_NEAR(y[i].item<float>(), formula(x[i].item<float>()), 2e-6) << name;
  }
}

TEST(Activation, RefusesAnUnknownNameAndListsTheKnown) {
  try {
    activate("swiglu", at::zeros({1}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("\"swiglu\" is not known; known are gelu"), std::string::npos);
  }
}

}  // namespace
}  // namespace pm::layers
