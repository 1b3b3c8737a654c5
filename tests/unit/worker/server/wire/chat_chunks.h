// SPDX-License-Identifier: Apache-2.0
// Chat completions with reasoning, text and tool calls, as other wire forms are made of.
#pragma once
#include <nlohmann/json.hpp>
#include <vector>

namespace pm::test {

/// Reasoning "Hm.", the text "One moment." and the calls weather({"city": "Rom"}) and clock({}), with usage.
std::vector<nlohmann::json> tool_call_chunks();
/// The same as a whole.
nlohmann::json tool_call_completion();

}  // namespace pm::test
