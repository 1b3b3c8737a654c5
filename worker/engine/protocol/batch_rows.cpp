// SPDX-License-Identifier: Apache-2.0
#include "worker/engine/protocol/batch_rows.h"

#include <algorithm>
#include <stdexcept>

namespace pm::engine {

namespace {

constexpr int64_t images_per_step = 8;
constexpr int64_t numbers_of_small_patch = 3 * 14 * 14;  // towers have patches of 14 or 16 pixels

int64_t row_elements(const Array& array) {
  int64_t elements = 1;
  for (size_t i = 1; i < array.shape.size(); ++i) elements *= array.shape[i];
  return elements;
}

}  // namespace

int64_t num_rows(const Arrays& inputs) {
  return inputs.empty() || inputs.begin()->second.shape.empty() ? 0 : inputs.begin()->second.shape[0];
}

int64_t row_tokens(const Arrays& inputs, int64_t step_tokens, int64_t image_tokens) {
  if (const auto grids = inputs.find(image_grids), patches = inputs.find("pixel_values");
      grids != inputs.end() && patches != inputs.end())
    return std::clamp<int64_t>(patches->second.shape[0] / std::max<int64_t>(1, grids->second.shape[0]), 1, step_tokens);
  if (const auto whole = inputs.find("pixel_values"); inputs.contains(image_sizes) && whole != inputs.end())
    return std::clamp<int64_t>(row_elements(whole->second) / numbers_of_small_patch, 1, step_tokens);
  const int64_t of_image = image_tokens > 0 ? std::min(image_tokens, step_tokens) : step_tokens / images_per_step;
  int64_t cost = 1;
  for (const auto& [name, array] : inputs) {
    const bool ids = std::holds_alternative<std::vector<int64_t>>(array.values);
    cost = std::max(cost, ids ? row_elements(array) : of_image);
  }
  return cost;
}

int64_t rows_per_step(const Arrays& inputs, int64_t first, int64_t step_tokens, int64_t image_tokens) {
  return std::clamp<int64_t>(step_tokens / row_tokens(inputs, step_tokens, image_tokens), 1, num_rows(inputs) - first);
}

Arrays slice_rows(const Arrays& arrays, int64_t first, int64_t count) {
  Arrays part;
  for (const auto& [name, array] : arrays) {
    Array& taken = part[name];
    taken.shape = array.shape;
    taken.shape[0] = count;
    const auto row = static_cast<std::ptrdiff_t>(row_elements(array));
    std::visit(
        [&](const auto& values) {
          const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first) * row;
          taken.values = std::decay_t<decltype(values)>(begin, begin + static_cast<std::ptrdiff_t>(count) * row);
        },
        array.values);
  }
  return part;
}

void append_rows(Arrays& all, Arrays more) {
  if (all.empty()) {
    all = std::move(more);
    return;
  }
  for (auto& [name, array] : more) {
    Array& whole = all.at(name);
    if (!std::equal(whole.shape.begin() + 1, whole.shape.end(), array.shape.begin() + 1, array.shape.end()))
      throw std::logic_error("the parts of output " + name + " differ in shape");
    whole.shape[0] += array.shape[0];
    std::visit(
        [&](auto& values) {
          const auto& added = std::get<std::decay_t<decltype(values)>>(array.values);
          values.insert(values.end(), added.begin(), added.end());
        },
        whole.values);
  }
}

}  // namespace pm::engine
