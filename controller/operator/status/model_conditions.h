// SPDX-License-Identifier: Apache-2.0
// Declares the conditions Planned, Scheduled, ModelLoaded, Ready, Reconciling and Stalled, in this order.
#pragma once
#include <vector>

#include "controller/core/conditions.h"
#include "controller/operator/status/model_status.h"

namespace pm::op {

std::vector<k8s::Condition> make_conditions(const StatusInputs&);

}  // namespace pm::op
