// SPDX-License-Identifier: Apache-2.0
#include "worker/layers/batch.h"

#include <ATen/ATen.h>

namespace pm::layers {

namespace {

void move(at::Tensor& tensor, at::Device device) {
  if (tensor.defined()) tensor = tensor.to(device);
}

}  // namespace

Batch Batch::on(at::Device device) && {
  for (at::Tensor* tensor : {&tokens,
                             &positions,
                             &axes,
                             &long_rows,
                             &pixels,
                             &masked_patches,
                             &added_positions,
                             &slots,
                             &layer_inputs,
                             &features.values,
                             &features.rows,
                             &features.aligned,
                             &features.positions,
                             &features.shares,
                             &entities.ids,
                             &entities.rows,
                             &entities.mentioned,
                             &entities.positions,
                             &entities.shares,
                             &states,
                             &images.places,
                             &images.values,
                             &patches.values,
                             &patches.table_rows,
                             &patches.shares,
                             &patches.squares})
    move(*tensor, device);
  for (Audio& one : audio) move(one.values, device);
  for (Pictures& one : pictures) move(one.pixels, device), move(one.cells, device);
  for (at::Tensor& part : vectors) move(part, device);
  for (at::Tensor& states : memory) move(states, device);
  for (auto* numbers : {&types, &features.types, &entities.types}) {
    for (auto& [key, rows] : *numbers) move(rows, device);
  }
  return std::move(*this);
}

Source Source::on(at::Device device) && {
  for (at::Tensor* tensor : {&states, &added_positions, &slots}) move(*tensor, device);
  return std::move(*this);
}

}  // namespace pm::layers
