// SPDX-License-Identifier: Apache-2.0
// Cases of norms and of SwiGLU's activation, for widths of BERT (768) and of an 8B model (4096, 14336).
#include <ATen/ATen.h>

#include "bench/ops/case.h"

namespace pm::bench {

namespace {

constexpr double tolerance = 5e-6, eps = 1e-5;

struct NormShape {
  int64_t rows, width;
  std::optional<at::ScalarType> weights;  ///< no value: neither weight nor bias
  double weight_offset = 0;               ///< of RMSNorm
};
const NormShape norm_shapes[] = {{1, 768, at::kFloat},     {7, 33, at::kBFloat16, 1}, {32, 768, std::nullopt},
                                 {1, 4096, at::kBFloat16}, {32, 4096, at::kHalf, 1},  {512, 4096, at::kBFloat16}};

at::Tensor normed(const at::Tensor& x, bool rms, const at::Tensor& weight, double weight_offset,
                  const at::Tensor& bias) {
  at::Tensor y = x.to(at::kDouble);
  if (!rms) y = y - y.mean(-1, /*keepdim=*/true);
  y = y / at::sqrt(y.square().mean(-1, /*keepdim=*/true) + eps);
  if (weight.defined()) y = y * (weight.to(at::kDouble) + (rms ? weight_offset : 0));
  return bias.defined() ? y + bias.to(at::kDouble) : y;
}

at::Tensor to_device(const at::Tensor& tensor, at::Device device) {
  return tensor.defined() ? tensor.to(device) : tensor;
}

/// The inputs of a norm on one device; x is what a fused norm writes to.
struct NormInputs {
  at::Tensor x, residual, weight, bias;
  double weight_offset;
};
using Norm = std::function<Outputs(const ops::Backend&, at::Tensor& x, const NormInputs&)>;

/// Cases of one norm, which returns its result and, if it adds a residual, the sum that replaces x.
std::vector<Case> norm_cases(bool rms, bool adds_residual, const Norm& call_norm) {
  std::vector<Case> cases;
  for (const NormShape& shape : norm_shapes) {
    Case one{.name = "[" + std::to_string(shape.rows) + ", " + std::to_string(shape.width) + "], " +
                     (shape.weights ? std::string(type_name(*shape.weights)) + " weight" : "no weight"),
             .tolerance = tolerance,
             .bytes = 4. * static_cast<double>((adds_residual ? 4 : 2) * shape.rows * shape.width)};
    one.make = [=]() -> Problem {
      NormInputs host{.x = at::randn({shape.rows, shape.width}), .weight_offset = shape.weight_offset};
      if (adds_residual) host.residual = at::randn_like(host.x);
      if (shape.weights) {
        host.weight = at::randn({shape.width}).to(*shape.weights);
        if (!rms) host.bias = at::randn({shape.width}).to(*shape.weights);
      }
      const at::Tensor sum = adds_residual ? host.x + host.residual : host.x;
      const auto expected = [=]() -> Outputs {
        const at::Tensor y = normed(sum, rms, host.weight, host.weight_offset, host.bias);
        return adds_residual ? Outputs{y, sum.to(at::kDouble)} : Outputs{y};
      };
      const auto on = [=](at::Device device) -> Run {
        const NormInputs there{.x = host.x.to(device, at::kFloat, /*non_blocking=*/false, /*copy=*/true),
                               .residual = to_device(host.residual, device),
                               .weight = to_device(host.weight, device),
                               .bias = to_device(host.bias, device),
                               .weight_offset = host.weight_offset};
        return [=](const ops::Backend& backend, const Call& call) {
          at::Tensor x = call.keep_inputs ? there.x.clone() : there.x;
          return call_norm(backend, x, there);
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace

std::vector<Case> layer_norm_cases() {
  return norm_cases(false, false, [](const ops::Backend& backend, at::Tensor& x, const NormInputs& given) -> Outputs {
    return {backend.layer_norm(x, given.weight, given.bias, eps, at::kFloat)};
  });
}

std::vector<Case> rms_norm_cases() {
  return norm_cases(true, false, [](const ops::Backend& backend, at::Tensor& x, const NormInputs& given) -> Outputs {
    return {backend.rms_norm(x, given.weight, eps, given.weight_offset, at::kFloat)};
  });
}

std::vector<Case> fused_add_layer_norm_cases() {
  return norm_cases(false, true, [](const ops::Backend& backend, at::Tensor& x, const NormInputs& given) -> Outputs {
    const at::Tensor y = backend.fused_add_layer_norm(x, given.residual, given.weight, given.bias, eps, at::kFloat);
    return {y, x};
  });
}

std::vector<Case> fused_add_rms_norm_cases() {
  return norm_cases(true, true, [](const ops::Backend& backend, at::Tensor& x, const NormInputs& given) -> Outputs {
    const at::Tensor y =
        backend.fused_add_rms_norm(x, given.residual, given.weight, eps, given.weight_offset, at::kFloat);
    return {y, x};
  });
}

std::vector<Case> silu_and_mul_cases() {
  std::vector<Case> cases;
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{3, 50}, {1, 14336}, {32, 14336}, {512, 14336}}) {
    Case one{.name = "[" + std::to_string(rows) + ", 2 x " + std::to_string(width) + "]",
             .tolerance = tolerance,
             .bytes = 12. * static_cast<double>(rows * width),
             .is_large = rows == 512};
    one.make = [rows = rows, width = width]() -> Problem {
      const at::Tensor x = 4 * at::randn({rows, 2 * width});
      const auto expected = [=]() -> Outputs {
        const at::Tensor wide = x.to(at::kDouble);
        return {at::silu(wide.narrow(1, 0, width)) * wide.narrow(1, width, width)};
      };
      const auto on = [=](at::Device device) -> Run {
        return [there = x.to(device)](const ops::Backend& backend, const Call&) -> Outputs {
          return {backend.silu_and_mul(there)};
        };
      };
      return {expected, on};
    };
    cases.push_back(std::move(one));
  }
  return cases;
}

}  // namespace pm::bench
