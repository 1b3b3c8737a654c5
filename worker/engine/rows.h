// Rows of a pass: inputs and outputs have the batch as their first dimension, so that a large pass can run in parts.
#pragma once
#include "worker/base/array.h"

namespace pm::engine {

/// Rows of the inputs, which all have as many; 0 without inputs.
int64_t rows_of(const Arrays& inputs);
/// What a row counts of a step's `step_tokens` tokens: elements of a row of ids; a row of pixels an eighth of them.
int64_t row_cost(const Arrays& inputs, int64_t step_tokens);
/// How many rows from `first` on make one step of at most `step_tokens` tokens; at least one.
int64_t rows_of_step(const Arrays& inputs, int64_t first, int64_t step_tokens);
/// Rows first .. first + count - 1 of every array.
Arrays slice_rows(const Arrays&, int64_t first, int64_t count);
/// Puts `more`'s rows below those of `all`. Arrays whose further dimensions differ have been padded differently: throws std::logic_error.
void append_rows(Arrays& all, Arrays more);

}  // namespace pm::engine
