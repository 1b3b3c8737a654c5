// SPDX-License-Identifier: Apache-2.0
// The smallest inputs of a forward pass, with which a replica checks itself before it becomes ready.
#pragma once
#include "worker/base/array.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Returns the smallest inputs that the model takes: for each stack one token (its end token if it has one, because
/// some heads pool it), more if its heads need more, or one black image.
Arrays probe_inputs(const policy::Model&);

}  // namespace pm::models
