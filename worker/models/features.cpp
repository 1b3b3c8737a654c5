// SPDX-License-Identifier: Apache-2.0
#include "worker/models/features.h"

#include <ATen/ATen.h>

namespace pm::models {

RequestFeatures read_features(const policy::Stack& stack, const at::Tensor& ids, RequestTensors& tensors) {
  RequestFeatures found;
  if (!stack.input.features) return found;
  const policy::Features& features = *stack.input.features;
  const int64_t rows = ids.size(0), width = features.projection.weight.shape[1];
  const std::string expected = c10::str("[", rows, " rows, vectors, ", width, "]");
  found.values = tensors.tensor(features.input, 3, expected);
  if (!found.values.defined()) {  // the accompanying tensors are known but useless
    for (const std::string& name : {features.mask, features.align}) {
      if (!name.empty() && tensors.find(name)) refuse(name + " is given without " + features.input);
    }
    for (const policy::IndexTable& table : features.tables)
      if (tensors.find(table.input)) refuse(table.input + " is given without " + features.input);
    return found;
  }
  if (found.values.size(0) != rows || found.values.size(2) != width)
    refuse(features.input + " has the shape " + c10::str(found.values.sizes()) + ", expected " + expected);
  found.values = found.values.to(at::kFloat);
  const std::vector<int64_t> shape{rows, found.values.size(1)};
  found.mask = tensors.mask(features.mask, shape);
  if (!found.mask.defined()) found.mask = at::ones(shape, at::kLong);
  for (const policy::IndexTable& table : features.tables) {
    at::Tensor types = tensors.tensor(table.input, 2, c10::str(shape));
    if (types.defined() && (types.sizes() != shape || types.is_floating_point()))
      refuse(table.input + " has the shape " + c10::str(types.sizes()) + ", expected integers " + c10::str(shape));
    if (!types.defined()) types = at::full(shape, table.row_if_absent(), at::kLong);
    check_range(table.input, types, table.skip_if_absent ? -1 : 0, table.table.shape[0], "they");
    found.types[table.key()] = types;
  }
  if (features.align.empty()) return found;
  found.align = tensors.tensor(features.align, 3, "[rows, vectors, positions]");
  if (!found.align.defined()) return found;
  if (found.align.size(0) != rows || found.align.size(1) < shape[1] || found.align.is_floating_point()) {
    refuse(features.align + " has the shape " + c10::str(found.align.sizes()) +
           ", expected integers for each of the vectors " + c10::str(shape));
  }
  found.align = found.align.narrow(1, 0, shape[1]);  // truncated, as transformers does
  check_range(features.align, found.align, -1, stack.positions, "positions");
  return found;
}

layers::FeatureRows lay_out_features(const RequestFeatures& request, int64_t tokens, const at::Tensor& places,
                                     int64_t length) {
  layers::FeatureRows rows;
  if (!request.values.defined()) return rows;
  const at::Tensor unmasked = request.mask.flatten().nonzero().squeeze(1);
  if (unmasked.numel() == 0) return rows;
  rows.values = at::index_select(request.values.flatten(0, 1), 0, unmasked);
  rows.rows = (places.remainder(length) >= tokens).nonzero().squeeze(1);
  for (const auto& [key, types] : request.types) rows.types[key] = at::index_select(types.flatten(), 0, unmasked);
  if (!request.align.defined()) return rows;
  const at::Tensor align = at::index_select(request.align.flatten(0, 1), 0, unmasked), there = align != -1,
                   pairs = there.nonzero();
  rows.aligned = pairs.select(1, 0);
  rows.positions = align.masked_select(there);
  rows.shares = at::index_select(there.sum(1).to(at::kFloat).reciprocal(), 0, rows.aligned);
  return rows;
}

void append_features(layers::FeatureRows& all, const layers::FeatureRows& more, int64_t row) {
  if (!more.values.defined()) return;
  const int64_t before = all.values.defined() ? all.values.size(0) : 0;
  const auto append = [](at::Tensor& to, const at::Tensor& values) {
    to = to.defined() ? at::cat({to, values}) : values;
  };
  append(all.values, more.values);
  append(all.rows, more.rows + row);
  for (const auto& [key, types] : more.types) append(all.types[key], types);
  if (!more.aligned.defined()) return;
  append(all.aligned, more.aligned + before);
  append(all.positions, more.positions);
  append(all.shares, more.shares);
}

}  // namespace pm::models
