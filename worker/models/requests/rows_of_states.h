// SPDX-License-Identifier: Apache-2.0
// The rows of each hidden state of a stack whose states are not those of its input's rows.
#pragma once
#include <string>
#include <vector>

#include "worker/models/requests/stack_input.h"
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Returns the rows of each hidden state of a stack that pools. Throws Error{InvalidRequest} that names the tensor
/// `mask` where padding leaves no row of a sequence.
std::vector<StackInput> pooled_rows(const policy::Model&, const std::string& mask, const policy::Stack&,
                                    const StackInput&);
/// Returns the rows of each hidden state of a stack with latents; the last ones are those of its output.
std::vector<StackInput> latent_rows(const policy::Stack&, const StackInput&);

}  // namespace pm::models
