// Names of strategies as other programs and training know them.
#pragma once
#include <string>
#include <string_view>

namespace pm {

/// One line for a name that is no strategy of ours (DataParallel, DDP, ZeRO-2, FSDP, sharded_ddp, GPipe, ...): the strategy that serves the same wish.
/// Spelling does not matter beyond letters and digits. An unknown name is told the five that there are.
std::string advice_on(std::string_view name);

}  // namespace pm
