// SPDX-License-Identifier: Apache-2.0
// Maps names of strategies from training and other engines to the strategies of this project.
#pragma once
#include <string>
#include <string_view>

namespace pm {

/// Returns one line for a name that is not a strategy here (DataParallel, DDP, ZeRO-2, FSDP, sharded_ddp, GPipe, ...):
/// the strategy that serves the same purpose. Only letters and digits matter. An unknown name gets the list of the five
/// strategies.
std::string advice_on(std::string_view name);

}  // namespace pm
