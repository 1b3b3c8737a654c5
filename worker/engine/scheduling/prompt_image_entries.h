// SPDX-License-Identifier: Apache-2.0
// Images among the tokens of prompts: their checks, and their part of the entries of steps.
#pragma once
#include <cstdint>

#include "worker/engine/engine.h"
#include "worker/engine/protocol/step_message.h"
#include "worker/engine/scheduling/batcher.h"

namespace pm::engine {

/// Checks that images stand in the prompt, one behind another, with `width` numbers for each of their tokens. A width
/// of 0 is that of a model that reads none. Throws Error{InvalidRequest}.
void check_images(const Request&, int64_t width);

/// Returns how many of `count` tokens from `first` on make a chunk that ends in no image: those before it, or all of an
/// image at the beginning, which may be more than `count`.
int64_t without_parts_of_images(const Request&, int64_t first, int64_t count);

/// Adds the rows of images among `count` tokens from `first` on, which tokens see each other if those of an image do,
/// and where tokens stand if those of an image have rows and columns.
void add_images(const Request&, int64_t first, int64_t count, const Limits&, StepEntry&);

}  // namespace pm::engine
