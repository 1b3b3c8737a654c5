// SPDX-License-Identifier: Apache-2.0
// What is done with the heads of a model, whatever their kinds.
#pragma once
#include <memory>

#include "worker/layers/loader.h"
#include "worker/models/heads/head.h"

namespace pm::models {

/// Loads a head of the model. Both specs must outlive it.
std::unique_ptr<Head> make_head(const policy::Model&, const policy::Head&, layers::Loader&);
/// Throws Error{UnknownArchitecture} for heads that this version does not run. Reads no tensor.
void validate_heads(const policy::Model&);
/// Reads the tensors of a request that heads take beside those of the stacks, for the stacks in `inputs`. Throws
/// Error{InvalidRequest}.
void read_head_inputs(const policy::Model&, RequestTensors&, Inputs&);
/// Adds what the smallest inputs of the model have because of its heads.
void add_head_probe_inputs(const policy::Model&, ProbeInputs&);

}  // namespace pm::models
