// SPDX-License-Identifier: Apache-2.0
// Which models with images among their tokens, or with patches of images of any size, run.
#pragma once
#include "worker/policy/spec/model.h"

namespace pm::models {

/// Throws Error{UnknownArchitecture} where a stack has images among its tokens that no earlier stack of patches makes
/// rows of, patches of images of any size beside other input, or positions along axes that its tokens do not have.
void check_images(const policy::Model&, const policy::Stack&);

}  // namespace pm::models
