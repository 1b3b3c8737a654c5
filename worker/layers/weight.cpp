// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/weight.h"

#include <ATen/ATen.h>

#include <stdexcept>
#include <string>

#include "worker/ops/linear.h"

namespace pm::layers {

namespace {

/// Joins lambdas to one visitor.
template <typename... Lambdas>
struct Visitor : Lambdas... {
  using Lambdas::operator()...;
};

[[noreturn]] void throw_empty(const char* use) {
  throw std::logic_error(std::string("an empty weight has no ") + use + "; a weight of the model is expected");
}

}  // namespace

at::Tensor Weight::Gathered::linear(const at::Tensor& x, const at::Tensor& bias, at::ScalarType result) const {
  const int64_t out = shape[0];
  at::Tensor y;
  gatherer->tiles(number, [&](int64_t first, const Weight& rows) {
    const int64_t count = rows.size(0);
    const at::Tensor part = rows.linear(x, bias.defined() ? bias.narrow(0, first, count) : bias, result);
    if (count == out) {
      y = part;
      return;
    }
    if (!y.defined()) y = at::empty({x.size(0), out}, part.options());
    y.narrow(1, first, count).copy_(part);
  });
  return y;
}

at::Tensor Weight::Gathered::value() const {
  at::Tensor copy;
  gatherer->tiles(number, [&](int64_t first, const Weight& rows) {
    const at::Tensor part = rows.value();
    if (!copy.defined()) copy = at::empty(shape, part.options());
    copy.narrow(0, first, part.size(0)).copy_(part);
  });
  return copy;
}

int64_t Weight::size(int64_t dimension) const {
  return std::visit(
      Visitor{[](std::monostate) -> int64_t { throw_empty("size"); },
              [&](const Resident& resident) { return resident.tensor.size(dimension); },
              [&](const Quantized& quantized) {
                return dimension == 0 ? quantized.matrix.out() : quantized.matrix.layout.in;
              },
              [&](const Gathered& gathered) { return gathered.shape.at(static_cast<size_t>(dimension)); }},
      form_);
}

at::Tensor Weight::linear(const at::Tensor& x, const at::Tensor& bias, at::ScalarType result) const {
  return std::visit(Visitor{[](std::monostate) -> at::Tensor { throw_empty("product"); },
                            [&](const Resident& resident) { return ops::linear(x, resident.tensor, bias, result); },
                            [&](const Quantized& quantized) { return ops::linear(x, quantized.matrix, bias, result); },
                            [&](const Gathered& gathered) { return gathered.linear(x, bias, result); }},
                    form_);
}

at::Tensor Weight::look_up(const at::Tensor& ids) const {
  return std::visit(Visitor{[](std::monostate) -> at::Tensor { throw_empty("rows"); },
                            [&](const Resident& resident) { return at::index_select(resident.tensor, 0, ids); },
                            [&](const Quantized& quantized) {
                              const ops::QuantizedMatrix& matrix = quantized.matrix;
                              return ops::dequantized({at::index_select(matrix.codes, 0, ids),
                                                       at::index_select(matrix.scales, 0, ids), matrix.layout});
                            },
                            [&](const Gathered& gathered) { return gathered.gatherer->look_up(gathered.number, ids); }},
                    form_);
}

at::Tensor Weight::value() const {
  return std::visit(
      Visitor{[](std::monostate) { return at::Tensor(); }, [](const Resident& resident) { return resident.tensor; },
              [](const Quantized& quantized) { return ops::dequantized(quantized.matrix); },
              [](const Gathered& gathered) { return gathered.value(); }},
      form_);
}

void Weight::tiles(const std::function<void(int64_t first, const at::Tensor& rows)>& use) const {
  const auto* gathered = std::get_if<Gathered>(&form_);
  if (!gathered) return use(0, value());
  gathered->gatherer->tiles(gathered->number, [&](int64_t first, const Weight& rows) { use(first, rows.value()); });
}

}  // namespace pm::layers
