// SPDX-License-Identifier: Apache-2.0
// Maps names of strategies from training and other engines to the strategies of this project.
#pragma once
#include <string>
#include <string_view>

#include "planner/plan.h"

namespace pm {

/// All strategies, in the order of messages.
inline constexpr Strategy strategies[] = {Strategy::Tensor, Strategy::Pipeline, Strategy::Data, Strategy::Sharded,
                                          Strategy::Offload};

/// Returns their names: "Tensor, Pipeline, Data, Sharded or Offload".
std::string strategy_list();

/// Returns one line for a name that is not a strategy here (DataParallel, DDP, ZeRO-2, FSDP, sharded_ddp, GPipe, ...):
/// the strategy that serves the same purpose. Only letters and digits matter. An unknown name gets the list of the
/// strategies.
std::string advice_on(std::string_view name);

}  // namespace pm
