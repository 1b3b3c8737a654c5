// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/quantized/quantized_linear.h"

#include <ATen/ATen.h>

namespace pm::layers {

namespace {

constexpr int weight_bits = 8, bias_bits = 32;

at::Tensor scale_of_rows(const at::Tensor& rows) {
  return ops::symmetric_scale(at::amax(at::abs(rows), 1), weight_bits);
}

at::Tensor integers_of(const at::Tensor& rows, const at::Tensor& scale) {
  return ops::to_integers(rows, weight_bits, scale.unsqueeze(1));
}

/// Makes integers of a weight that the rank holds, where it lies, and returns its scales; undefined for one that is
/// gathered. `scale` may have the scales of the whole matrix.
at::Tensor made_integers(const Weight& weight, at::Tensor scale = {}) {
  if (weight.is_gathered()) return {};
  at::Tensor held = weight.value();
  if (!scale.defined()) scale = scale_of_rows(held);
  held.copy_(integers_of(held, scale));
  return scale;
}

/// Calls `use(first, integers, scales)` for all rows of a weight, tile by tile.
template <typename Use>
void for_each_tile(const Weight& weight, const at::Tensor& scale, const Use& use) {
  weight.tiles([&](int64_t first, const at::Tensor& rows) {
    if (scale.defined()) return use(first, rows, scale.narrow(0, first, rows.size(0)));
    const at::Tensor of_tile = scale_of_rows(rows);
    use(first, integers_of(rows, of_tile), of_tile);
  });
}

}  // namespace

at::Tensor activation_scale(const policy::ActivationRange& range, int bits, Loader& loader) {
  const at::Tensor low = loader.load(range.low), high = loader.load(range.high);
  return ops::symmetric_scale(at::maximum(at::abs(low), at::abs(high)), bits);
}

QuantizedColumns::QuantizedColumns(const std::vector<const policy::Linear*>& linears, Loader& loader) {
  std::vector<const policy::Param*> weights, biases;
  for (const policy::Linear* linear : linears) {
    weights.push_back(&linear->weight);
    biases.push_back(&linear->bias.value());
  }
  bias_ = loader.weight(biases);
  weight_ = loader.weight(weights);
  scale_ = made_integers(weight_);
}

ops::ScaledIntegers QuantizedColumns::operator()(const ops::ScaledIntegers& x) const {
  const at::Tensor integers = x.values / x.scale, bias = bias_.value();
  std::vector<at::Tensor> values, scales;
  for_each_tile(weight_, scale_, [&](int64_t first, const at::Tensor& rows, const at::Tensor& of_rows) {
    const at::Tensor scale = of_rows * x.scale,
                     added = ops::to_integers(bias.narrow(0, first, rows.size(0)), bias_bits, scale);
    values.push_back(at::linear(integers, rows, added) * scale);
    scales.push_back(scale);
  });
  if (values.size() == 1) return {values[0], scales[0]};
  return {at::cat(values, 1), at::cat(scales)};
}

QuantizedRows::QuantizedRows(const policy::Linear& linear, Loader& loader) : weight_(loader.weight(linear.weight)) {
  at::Tensor scale;
  if (loader.partition().ranks() > 1) scale = ops::symmetric_scale(loader.largest_of_rows(linear.weight), weight_bits);
  scale_ = made_integers(weight_, scale);
  bias_ = loader.load(linear.bias.value());
}

ops::ScaledIntegers QuantizedRows::operator()(const ops::ScaledIntegers& x, comm::Communicator& comm) const {
  const at::Tensor integers = at::round(x.values / x.scale);
  std::vector<at::Tensor> sums, scales;
  for_each_tile(weight_, scale_, [&](int64_t, const at::Tensor& rows, const at::Tensor& of_rows) {
    sums.push_back(at::linear(integers, rows));
    scales.push_back(of_rows);
  });
  at::Tensor sum = sums.size() == 1 ? sums[0] : at::cat(sums, 1);
  if (comm.size() > 1) comm.all_reduce(sum = sum.contiguous());
  const at::Tensor scale = (scales.size() == 1 ? scales[0] : at::cat(scales)) * x.scale;
  return {sum.add_(ops::to_integers(bias_, bias_bits, scale)).mul_(scale), scale};
}

QuantizedTable::QuantizedTable(const policy::Param& table, Loader& loader)
    : table_(table, loader), scale_(ops::symmetric_scale(loader.largest_of_rows(table).amax(0, true), weight_bits)) {}

at::Tensor QuantizedTable::partial(const at::Tensor& rows) const {
  return ops::to_integers(table_.partial(rows), weight_bits, scale_) * scale_;
}

}  // namespace pm::layers
