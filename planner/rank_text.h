// SPDX-License-Identifier: Apache-2.0
// Says in a few words what a rank of a plan holds.
#pragma once
#include <string>

#include "planner/plan.h"

namespace pm::text {

/// Returns "encoder layers 4-6, decoder layers 0-2", or "no layers".
std::string layers_of(const RankPlan&);
/// Returns "heads 0-5 of 12", for each stack where they differ, or "no heads".
std::string heads_of(const RankPlan&);

}  // namespace pm::text
