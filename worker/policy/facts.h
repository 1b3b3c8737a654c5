// Facts of a resolved model: its parameters merged over layers, as the planner wants them.
#pragma once
#include "worker/policy/model.h"

namespace pm::policy {

/// Sets Param::matrix of all parameters.
void mark_matrices(Model&);

/// Exact: every parameter with storage of its own is counted once, in the part of its stack, axis, units and type.
Facts facts_of(const Model&);

}  // namespace pm::policy
