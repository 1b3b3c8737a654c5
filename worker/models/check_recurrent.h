// SPDX-License-Identifier: Apache-2.0
// Which models with recurrent layers, or with layers of one block, run.
#pragma once
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Throws Error{UnknownArchitecture} where a stack has layers with states of sequences, or without a mixer or an MLP,
/// beside what the layers do not run. The planner counts states of one shape in a stack.
void check_recurrent(const policy::Model&, const policy::Stack&);

}  // namespace pm::models
