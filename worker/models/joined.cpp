// SPDX-License-Identifier: Apache-2.0
#include "worker/models/joined.h"

#include <ATen/ATen.h>

#include "worker/models/features.h"
#include "worker/models/requests/entities.h"
#include "worker/models/requests/request_memory.h"

namespace pm::models {

namespace {

/// Adds spans whose rows begin at row `first`.
void append_spans(const ops::StepSequences& more, int64_t first, ops::StepSequences& all) {
  for (ops::SequenceSpan span : more.spans) {
    span.first += first;
    span.key_row += first;
    all.spans.push_back(span);
  }
}

layers::PatchRows joined_patches(const std::vector<layers::PatchRows>& parts) {
  const auto all = [&](at::Tensor layers::PatchRows::* member) {
    std::vector<at::Tensor> tensors;
    for (const layers::PatchRows& part : parts)
      if ((part.*member).defined()) tensors.push_back(part.*member);
    return tensors.empty() ? at::Tensor() : at::cat(tensors);
  };
  return {all(&layers::PatchRows::values), all(&layers::PatchRows::table_rows), all(&layers::PatchRows::shares),
          all(&layers::PatchRows::squares)};
}

}  // namespace

layers::Batch joined(const std::vector<const StackInput*>& stack_inputs) {
  if (stack_inputs.size() == 1) return stack_inputs[0]->batch;
  std::vector<at::Tensor> tokens, positions, axes, long_rows, pixels, masked, places;
  std::map<std::string, std::vector<at::Tensor>> types;
  layers::Batch batch;
  std::vector<layers::PatchRows> patches;
  int64_t count = 0;  // axes along which tokens of any request have positions
  for (const StackInput* stack_input : stack_inputs)
    if (const at::Tensor& own = stack_input->batch.axes; own.defined()) count = own.size(1);
  int64_t rows = 0, squares = 0;
  for (const StackInput* stack_input : stack_inputs) {
    const layers::Batch& own = stack_input->batch;
    if (own.tokens.defined()) tokens.push_back(own.tokens);
    if (own.positions.defined()) positions.push_back(own.positions);
    if (count > 0)
      axes.push_back(own.axes.defined() ? own.axes : own.positions.unsqueeze(1).expand({own.positions.size(0), count}));
    if (own.long_rows.defined()) long_rows.push_back(own.long_rows);
    if (own.pixels.defined()) pixels.push_back(own.pixels);
    if (own.masked_patches.defined()) masked.push_back(own.masked_patches);
    batch.audio.insert(batch.audio.end(), own.audio.begin(), own.audio.end());
    batch.pictures.insert(batch.pictures.end(), own.pictures.begin(), own.pictures.end());
    for (const auto& [name, values] : own.types) types[name].push_back(values);
    batch.vectors.resize(own.vectors.size());
    for (size_t part = 0; part < own.vectors.size(); ++part) {
      at::Tensor& all = batch.vectors[part];
      all = all.defined() ? at::cat({all, own.vectors[part]}) : own.vectors[part];
    }
    if (own.images.places.defined()) places.push_back(own.images.places + rows);
    if (own.patches.values.defined()) {
      patches.push_back(own.patches);
      patches.back().squares = own.patches.squares + squares;
      squares += own.patches.squares.numel();
    }
    append_features(batch.features, own.features, rows);
    append_entities(batch.entities, own.entities, rows);
    append_memory(batch.memory, static_cast<int64_t>(batch.sequences.spans.size()), own.memory,
                  static_cast<int64_t>(own.sequences.spans.size()));
    if (!own.hidden.empty()) {
      batch.hidden.resize(batch.sequences.spans.size());
      batch.hidden.insert(batch.hidden.end(), own.hidden.begin(), own.hidden.end());
    }
    batch.columns.insert(batch.columns.end(), own.columns.begin(), own.columns.end());
    append_spans(own.sequences, rows, batch.sequences);
    append_spans(own.patch_windows, rows, batch.patch_windows);
    rows += stack_input->batch_rows();
  }
  if (!tokens.empty()) batch.tokens = at::cat(tokens);
  if (!positions.empty()) batch.positions = at::cat(positions);
  if (!axes.empty()) batch.axes = at::cat(axes);
  if (!patches.empty()) batch.patches = joined_patches(patches);
  if (!long_rows.empty()) batch.long_rows = at::cat(long_rows);
  if (!pixels.empty()) batch.pixels = at::cat(pixels);
  if (!places.empty()) batch.images.places = at::cat(places);
  if (!masked.empty()) batch.masked_patches = at::cat(masked);
  for (auto& [name, values] : types) batch.types[name] = at::cat(values);
  return batch;
}

}  // namespace pm::models
