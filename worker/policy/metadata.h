// SPDX-License-Identifier: Apache-2.0
// Computes the metadata of a resolved model: its parameters merged over layers, as the planner reads them.
#pragma once
#include "worker/policy/spec/model.h"

namespace pm::policy {

/// Sets Param::matrix of all parameters.
void mark_matrices(Model&);

/// Returns the metadata of the model. Every parameter with storage of its own is counted once, in the part of its
/// stack, axis, units and type.
ModelMetadata model_metadata(const Model&);

}  // namespace pm::policy
