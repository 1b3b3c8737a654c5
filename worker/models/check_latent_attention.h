// SPDX-License-Identifier: Apache-2.0
// Which models with latent attention run.
#pragma once
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Throws Error{UnknownArchitecture} where keys and values are made of latents in a stack that the layers do not run.
/// The planner counts latents of one width in a stack.
void check_latent_attention(const policy::Model&, const policy::Stack&);

}  // namespace pm::models
