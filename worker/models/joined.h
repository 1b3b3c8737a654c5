// SPDX-License-Identifier: Apache-2.0
// Joins the rows of several requests into one batch of a stack.
#pragma once
#include <vector>

#include "worker/models/requests/stack_input.h"

namespace pm::models {

/// Returns the rows of the inputs one after another; at least one input.
layers::Batch joined(const std::vector<const StackInput*>&);

}  // namespace pm::models
