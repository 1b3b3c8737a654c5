// SPDX-License-Identifier: Apache-2.0
// Draws a plan.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/plan.h"

namespace pm {

/// Returns a drawing of the plan as an SVG document without scripts and outside resources: a column for each stage, a
/// row for each tensor-parallel rank, a panel for each data-parallel rank. A box tells the layers and heads of a rank
/// and has two bars of its device's memory, in bytes: what the plan predicts, and `measured[rank]` where there is one.
std::string plan_svg(const Plan& plan, const std::vector<std::optional<Memory>>& measured = {});

}  // namespace pm
