// SPDX-License-Identifier: Apache-2.0
// The tokens of images in a request, in whose place rows of another stack stand.
#pragma once
#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/stack.h"

namespace pm::models {

/// Finds the tokens of images of a stack, in whose place the rows of the request's images stand, one after another.
/// Nothing where the request has no images. Throws Error{InvalidRequest} unless there is a token for each row.
void place_images(const policy::Stack&, const Inputs&, StackInput&);
/// Finds the tokens that attend in both directions: those with a type of 1 that stand beside each other.
/// `types` [rows, length] are undefined where the request has none; then there are no such tokens, as in transformers.
void find_bidirectional_tokens(const at::Tensor& types, StackInput&);

}  // namespace pm::models
