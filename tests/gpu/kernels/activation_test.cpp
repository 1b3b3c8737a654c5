// SPDX-License-Identifier: Apache-2.0
// Activations, gated and not, against their formulas in fp64.
#include "worker/ops/cuda/activation.h"
#include "tests/gpu/kernels/device.h"

namespace pm::cuda_test {
namespace {

using ops::cuda::Activation;
using Activations = Kernels;

double activated(Activation activation, double x) {
  switch (activation) {
    case Activation::Gelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2)));
    case Activation::GeluTanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::QuickGelu:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::Relu:
      return std::max(x, 0.0);
    case Activation::Silu:
      return x / (1 + std::exp(-x));
    case Activation::Tanh:
      return std::tanh(x);
    default:
      return x;
  }
}

TEST_F(Activations, EqualTheFormula) {
  for (Activation activation : {Activation::None, Activation::Gelu, Activation::GeluTanh, Activation::QuickGelu,
                                Activation::Relu, Activation::Silu, Activation::Tanh}) {
    for (Element type : {Element::F32, Element::F16, Element::BF16}) {
      for (const auto& [rows, width] : {std::pair<size_t, size_t>{3, 344}, {2, 37}, {1, 1}, {9, 8}}) {
        for (bool gated : {true, false}) {
          SCOPED_TRACE(std::to_string(static_cast<int>(activation)) + name(type) + std::to_string(rows) + "x" +
                       std::to_string(width) + (gated ? " gated" : ""));
          std::vector<float> given = numbers(rows * width * 2, 1, 3);
          given[0] = -40;  // where exponentials overflow
          const Floats x(given, type);
          const Floats y(rows * width, type);
          std::vector<double> expected(rows * width);
          double size = 1;
          for (size_t r = 0; r < rows; ++r) {
            for (size_t i = 0; i < width; ++i) {
              const double value = activated(activation, x.values()[r * (gated ? 2 : 1) * width + i]);
              expected[r * width + i] = gated ? value * x.values()[(2 * r + 1) * width + i] : value;
              size = std::max(size, std::abs(expected[r * width + i]));
            }
          }
          in_each_order([&] {
            ops::cuda::activate({.activation = activation,
                                 .gated = gated,
                                 .x = x.data(),
                                 .y = y.data(),
                                 .type = type,
                                 .rows = static_cast<int64_t>(rows),
                                 .width = static_cast<int64_t>(width)},
                                nullptr);
            EXPECT_LE(largest_error(y.read(), expected), size * (4e-7 + unit(type)));
          });
        }
      }
    }
  }
}
TEST_F(Activations, NothingToDo) { ops::cuda::activate({.rows = 0, .width = 8}, nullptr); }

}  // namespace
}  // namespace pm::cuda_test
