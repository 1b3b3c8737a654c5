// SPDX-License-Identifier: Apache-2.0
// Declares how the response to a request updates the state of a reconcile.
#pragma once
#include <optional>

#include "controller/operator/reconcile/reconcile_step.h"

namespace pm::op {

struct AppliedResponse {
  std::optional<Done> end;                ///< set when the reconcile must end; without its events
  std::optional<k8s::Request> follow_up;  ///< the request that must follow at once
};

/// Applies the response to `state.sent`. `state` must have a view and a sent request.
AppliedResponse apply_response(ReconcileState& state, const k8s::Response& response);

}  // namespace pm::op
