// SPDX-License-Identifier: Apache-2.0
// Rows of a stack that stand for tokens to be predicted.
#pragma once
#include <string>

#include "worker/policy/spec/param.h"

namespace pm::policy {

/// The query stream of two-stream attention (Yang et al., "XLNet", 2019): a row for each token to be predicted, which
/// stands at its position, begins with the same state whatever the token is, and which no other row sees. A request may
/// name the positions, and which tokens do not see which.
struct Targets {
  Param state;          ///< [hidden]: what each row begins with
  std::string mapping;  ///< the request's tensor of positions [rows, targets, length], one 1 for each target
  std::string hidden;   ///< the request's tensor of tokens that others do not see [rows, length, length]
};

}  // namespace pm::policy
