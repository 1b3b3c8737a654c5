// SPDX-License-Identifier: Apache-2.0
// Splits and joins the inputs and outputs of a forward pass along their batch dimension, so that a large forward pass
// can run in parts.
#pragma once
#include "worker/base/array.h"

namespace pm::engine {

/// The input that says how many patches the images of a forward pass have, where these may have any size. Their patches
/// are no rows of it, so that the images of one request stay together.
inline constexpr const char* image_grids = "image_grid_thw";

/// The input with the sizes of images that may have any size and are padded to one.
inline constexpr const char* image_sizes = "image_sizes";

/// Returns the number of rows, which is the same for all inputs; 0 without inputs.
int64_t num_rows(const Arrays& inputs);
/// Returns how many tokens of a step's budget one row costs: its ids, or for a row of pixels `image_tokens`; where
/// these are 0, an eighth of `step_tokens`. An image of any size costs its patches, and at most a step.
int64_t row_tokens(const Arrays& inputs, int64_t step_tokens, int64_t image_tokens);
/// Returns how many rows from `first` on fit into `step_tokens` tokens; at least one.
int64_t rows_per_step(const Arrays& inputs, int64_t first, int64_t step_tokens, int64_t image_tokens);
/// Copies rows first .. first + count - 1 of every array.
Arrays slice_rows(const Arrays&, int64_t first, int64_t count);
/// Appends the rows of `more` to those of `all`. Throws std::logic_error if other dimensions differ, because the parts
/// were padded differently.
void append_rows(Arrays& all, Arrays more);

}  // namespace pm::engine
