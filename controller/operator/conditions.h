// Planned, Scheduled, ModelLoaded, Ready, Reconciling, Stalled, in this order.
#pragma once
#include <vector>

#include "controller/core/conditions.h"
#include "controller/operator/status.h"

namespace pm::op {

std::vector<k8s::Condition> conditions_of(const StatusInputs&);

}  // namespace pm::op
